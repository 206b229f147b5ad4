"""Status files on a full disk: written in place, by nobody else's leave and to nobody's harm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from real_file_systems import fill, is_full, small_ext4, small_tmpfs
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.heartbeats.status_files import load_status, store_status
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load
from tfckpt_trainer.rundir.storage.files import overwrite


def status(step: int, detail: str = "") -> WorkerStatus:
    return WorkerStatus(
        index=0,
        host="here",
        pid=1,
        process_started_at=0.0,
        updated_at=time.time(),
        interval_seconds=1.0,
        activity=Activity.TRAINING,
        step=step,
        detail=detail,
    )


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_status_is_written_in_place_on_a_full_disk(tmp_path: Path, kind: str) -> None:
    mounted = small_tmpfs if kind == "tmpfs" else small_ext4
    with mounted(tmp_path / "disk", megabytes=6) as root:
        path = root / "worker-0.json"
        store_status(path, status(1, "a long detail that the next one does not have"))
        fill(root)
        assert is_full(root)
        before = os.stat(path)
        store_status(path, status(2), if_full=status(2, "full"))
        after = os.stat(path)
        assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
        assert after.st_mtime_ns > before.st_mtime_ns
        assert (load(path, WorkerStatus).step, load(path, WorkerStatus).detail) == (2, "full")
        store_status(path, status(3, "x" * 100))
        assert load(path, WorkerStatus).detail == "x" * 100
        with pytest.raises(OSError, match="No space left"):
            store_status(path, status(4, "x" * 9000))
        assert load(path, WorkerStatus).step == 3
        with pytest.raises(OSError, match="No space left"):
            store_status(root / "worker-1.json", status(1))
        assert [entry.name for entry in root.glob("*worker*")] == ["worker-0.json"]


def test_overwriting_keeps_the_inode_and_pads_with_spaces(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a longer text")
    inode = path.stat().st_ino
    overwrite(path, b"short")
    assert path.read_bytes() == b"short        "
    assert path.stat().st_ino == inode


def test_nothing_but_a_plain_file_with_one_name_is_written_over(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"of somebody else")
    link, second = tmp_path / "link", tmp_path / "second"
    link.symlink_to(target)
    os.link(target, second)
    os.mkfifo(tmp_path / "pipe")
    for path in (link, second, tmp_path / "pipe"):
        with pytest.raises(DamagedFileError):
            overwrite(path, b"new")
    with pytest.raises(OSError, match="Is a directory"):
        overwrite(tmp_path, b"new")
    with pytest.raises(FileNotFoundError):
        overwrite(tmp_path / "missing", b"new")
    assert target.read_bytes() == b"of somebody else"
    assert not (tmp_path / "missing").exists()


def test_a_torn_status_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    run.create()
    path = run.worker_status(0)
    store_status(path, status(7))
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    seen = []

    def becomes_whole(source: Path | str) -> tuple[bytes, int]:
        data = Path(source).read_bytes()
        seen.append(data)
        path.write_bytes(whole)
        return data, 0

    monkeypatch.setattr("tfckpt_trainer.rundir.storage.documents.read_timed", becomes_whole)
    assert [worker.step for worker in read_workers(run)] == [7]
    assert len(seen) == 2


def test_a_damaged_status_is_told(tmp_path: Path) -> None:
    (tmp_path / "worker-0.json").write_text("{")
    with pytest.raises(DamagedFileError):
        load_status(tmp_path / "worker-0.json", WorkerStatus)
