"""Nothing that a test does reaches what the person who runs it has configured or cached."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture(autouse=True, scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory):
    """Gives all tests, and the processes they start, directories of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture
def become_nobody() -> Iterator[Callable[[], None]]:
    """Gives up what root may read, where the tests run as root, until the test ends."""
    own = os.geteuid()

    def become() -> None:
        if own == 0:
            os.seteuid(NOBODY)

    yield become
    os.seteuid(own)


@pytest.fixture
def open_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that everybody reaches, with a cache in which everybody may write.

    The directories of `tmp_path` are closed to all but their owner.
    """
    place = Path(tempfile.mkdtemp(prefix="tfckpt-open-"))
    place.chmod(0o755)
    cache = place / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    root = place / "run"
    root.mkdir()
    yield root
    shutil.rmtree(place)
