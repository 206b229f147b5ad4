"""The file systems on which other tests fail: they run full and lose power as said."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from child_processes import in_child
from real_file_systems import (
    POWER_CUT_NEEDS,
    fill,
    is_full,
    own_mounts,
    power_cut_disk,
    small_ext4,
    small_tmpfs,
)
from requirements import needs, require
from waiting import wait_until


@pytest.mark.parametrize("mounted", [small_tmpfs, small_ext4])
def test_a_full_one_takes_nothing_until_something_is_deleted(tmp_path: Path, mounted) -> None:
    with mounted(tmp_path / "disk") as root:
        assert not is_full(root)
        filler = fill(root)
        assert is_full(root)
        filler.unlink()
        assert not is_full(root)
        fill(root, leave=64 << 10)
        assert not is_full(root)


@contextmanager
def seen_elsewhere() -> Iterator[None]:
    """Keeps all that is mounted now mounted in another mount namespace."""
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; read end"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate()


@pytest.mark.parametrize("kind", POWER_CUT_NEEDS)
def test_a_power_cut_loses_what_was_not_flushed(tmp_path: Path, kind: str) -> None:
    with power_cut_disk(tmp_path / "disk", kind) as disk:
        (disk.root / "flushed").write_bytes(b"1")
        disk.flush()
        (disk.root / "not flushed").write_bytes(b"1")
        disk.cut_power()
        with pytest.raises(OSError, match="Input/output error"):
            (disk.root / "after").write_bytes(b"1")
        disk.restore_power()
        assert [path.name for path in disk.root.iterdir()] == ["flushed"]


@pytest.mark.parametrize("kind", POWER_CUT_NEEDS)
def test_a_power_cut_may_leave_a_name_whose_content_is_lost(tmp_path: Path, kind: str) -> None:
    with power_cut_disk(tmp_path / "disk", kind) as disk:
        (disk.root / "file").write_bytes(b"1")
        disk.cut_power(with_log=True)
        disk.restore_power()
        assert (disk.root / "file").read_bytes() == b""


@needs("mount namespaces")
def test_mounts_of_a_process_end_with_it_however_it_ends(tmp_path: Path) -> None:
    place = tmp_path / "disk"

    def action() -> int:
        own_mounts()
        with power_cut_disk(place) as disk:
            (tmp_path / "told").write_text(loop_devices())
            assert disk.root.parent.is_mount()
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    require(*POWER_CUT_NEEDS["xfs"])
    code, told = in_child(action)
    assert (code, told) == (-signal.SIGKILL, "")
    assert f"{place}-image" in (tmp_path / "told").read_text()
    assert not place.is_mount()
    wait_until(lambda: f"{place}-image" not in loop_devices(), 10, "the loop device is free")


def loop_devices() -> str:
    """What is on them."""
    return subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout


@needs("mount namespaces")
def test_power_comes_back_where_another_namespace_keeps_the_disk_that_was_cut_off(
    tmp_path: Path,
) -> None:
    with power_cut_disk(tmp_path / "disk") as disk:
        (disk.root / "flushed").write_bytes(b"1")
        disk.flush()
        with seen_elsewhere():
            disk.cut_power()
            disk.restore_power()
            assert [path.name for path in disk.root.iterdir()] == ["flushed"]


@needs("mount namespaces")
def test_a_disk_that_another_namespace_keeps_goes_away_all_the_same(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with power_cut_disk(tmp_path / "disk") as disk:
            stack.enter_context(seen_elsewhere())
            place = disk.root.parent
        assert not place.is_mount()
        assert not (tmp_path / "disk-image").is_mount()
