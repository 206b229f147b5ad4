"""The file systems on which other tests fail: they run full and lose power as said."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from real_file_systems import fill, is_full, power_cut_disk, small_ext4, small_tmpfs
from requirements import needs


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


def test_a_power_cut_loses_what_was_not_flushed(tmp_path: Path) -> None:
    with power_cut_disk(tmp_path / "disk") as disk:
        (disk.root / "flushed").write_bytes(b"1")
        disk.flush()
        (disk.root / "not flushed").write_bytes(b"1")
        disk.cut_power()
        with pytest.raises(OSError, match="Input/output error"):
            (disk.root / "after").write_bytes(b"1")
        disk.restore_power()
        assert [path.name for path in disk.root.iterdir()] == ["flushed"]


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
