"""Temporary directories are removed, whatever interrupts their process."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfckpt_trainer.rundir.storage.scratch_directory import scratch_directory


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files are, not known to Python yet; signals raise an exception."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = {number: signal.signal(number, interrupt) for number in (2, 15)}
    yield tmp_path
    for number, handler in before.items():
        assert signal.signal(number, handler) is interrupt


def test_it_is_removed_with_what_is_in_it(parent: Path) -> None:
    with scratch_directory("tried-") as place:
        assert place.parent == parent
        assert place.name.startswith("tried-")
        (place / "below").mkdir()
        (place / "below/file").touch()
    assert list(parent.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("call", ["open", "unlink", "mkdir"])
def test_a_signal_while_it_is_made_leaves_nothing(
    parent: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """Also not the file by which Python tries the directory."""
    original, left = getattr(os, call), [number]

    def interrupted(*arguments, **options):
        result = original(*arguments, **options)
        if left:
            os.kill(os.getpid(), left.pop())
        return result

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt), scratch_directory("tried-"):
        pytest.fail("the signal was lost")
    assert list(parent.iterdir()) == []


def test_an_ignored_signal_stays_ignored(parent: Path) -> None:
    del parent
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with scratch_directory("tried-"):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_short_path_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with scratch_directory("tried-", is_short=True) as place:
        assert place.parent == Path("/tmp")
