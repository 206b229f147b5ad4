"""Whether somebody else writes in a directory: real processes that hold real files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters, foreign_writers
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    Derivation,
    SourceFacts,
)
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage import filesystems
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system, mounted_type
from tfckpt_trainer.tools.tensors.derived import add_derived_checkpoint

SCRIPT = Path(__file__).parent / "scripts" / "holder.py"
LATER = 3600.0


@pytest.fixture
def hold() -> Iterator:
    """Starts processes that hold files open until the test is over."""
    started = []

    def start(*files: str) -> int:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *files], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def evidence(made, later: float = LATER) -> ForeignWriters:
    return foreign_writers(made.run, time.time() + later)


def pids(found: ForeignWriters) -> list[int]:
    return [process.pid for process in found.processes]


def test_nobody(made):
    made.tensorflow("ckpt-1")
    found = evidence(made)
    assert (found.processes, found.fresh_seconds, found.open_checkpoints) == ((), None, frozenset())
    assert not found.is_likely


def test_a_checkpoint_that_a_command_made_is_no_sign_of_a_trainer(made):
    made.tensorflow("ckpt-1")
    record = CheckpointRecord(
        name="average-1",
        step=1,
        branch=0,
        sequence=0,
        saved_at=0.0,
        trigger="average",
        derived=Derivation(operation="average", sources=[SourceFacts(name="ckpt-1")]),
    )
    values = np.ones(3, np.float32)
    add_derived_checkpoint(
        made.run, record, lambda writer, touch: writer.add("w", "float32", (3,), [values])
    )
    now = time.time()
    assert not foreign_writers(made.run, now).is_likely
    assert foreign_writers(made.run, now).in_use == frozenset()
    os.utime(made.root / "average-1.index", (now + 10, now + 10))
    assert foreign_writers(made.run, now + 11).fresh_checkpoints == {"average-1"}


def test_a_save_under_way(made, hold):
    made.tensorflow("ckpt-1")
    made.temporary("ckpt-2", age=5)
    pid = hold(f"wb:{made.root}/ckpt-2_temp/part-00000-of-00001.index.tempstate1")
    found = evidence(made)
    assert pids(found) == [pid]
    assert "python" in found.processes[0].name
    assert "holder.py" in found.processes[0].command
    assert found.processes[0].file == "ckpt-2_temp/part-00000-of-00001.index.tempstate1"
    assert found.open_checkpoints == {"ckpt-2"}
    assert found.is_likely


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
def test_a_trainer_between_saves_writes_its_events(made, hold, mode):
    made.tensorflow("ckpt-1")
    (made.root / "train").mkdir()
    events = made.root / "train" / "events.out.tfevents.1"
    events.write_bytes(b"x")
    pid = hold(f"{mode}:{events}")
    assert pids(evidence(made)) == [pid]
    assert evidence(made).open_checkpoints == frozenset()


def test_a_file_that_was_deleted_is_still_written(made, hold):
    made.tensorflow("ckpt-1")
    pid = hold(f"wb:{made.root}/ckpt-1.data-00000-of-00001")
    (made.root / "ckpt-1.data-00000-of-00001").unlink()
    assert pids(evidence(made)) == [pid]


def test_who_reads_or_lists_is_no_trainer_but_keeps_a_checkpoint_in_use(made, hold):
    made.tensorflow("ckpt-1")
    made.tensorflow("ckpt-2")
    hold(f"d:{made.root}", f"rb:{made.root}/ckpt-1.data-00000-of-00001")
    found = evidence(made)
    assert found.processes == ()
    assert found.open_checkpoints == {"ckpt-1"}
    assert not found.is_likely


def test_not_in_a_directory_of_a_similar_name(made, hold):
    made.tensorflow("ckpt-1")
    other = made.root.with_name("run2")
    other.mkdir()
    hold(f"wb:{other}/ckpt-1.index")
    assert not evidence(made).is_likely


def test_behind_a_link(made, hold, tmp_path):
    (tmp_path / "link").symlink_to(made.root)
    pid = hold(f"wb:{tmp_path}/link/ckpt-3.index")
    assert pids(evidence(made)) == [pid]


def test_this_process_itself_is_not_meant(made):
    with open(made.root / "ckpt-1.index", "wb"):
        assert not evidence(made).is_likely


def test_our_own_files_and_our_own_workers_are_not_meant(made, hold):
    made.run.create()
    hold(f"wb:{made.run.logs_directory}/worker-0.log")
    assert not evidence(made).is_likely
    pid = hold(f"wb:{made.root}/events.out.tfevents.2")
    assert pids(evidence(made)) == [pid]
    status = WorkerStatus(
        index=0,
        host="here",
        pid=pid,
        process_started_at=psutil.Process(pid).create_time(),
        updated_at=time.time(),
        interval_seconds=1,
        activity=Activity.TRAINING,
        step=1,
    )
    store(made.run.worker_status(0), status)
    assert not evidence(made).is_likely
    store(
        made.run.worker_status(0),
        WorkerStatus(
            **{
                f: getattr(status, f) for f in status.__struct_fields__ if f != "process_started_at"
            },
            process_started_at=status.process_started_at - 1000,
        ),
    )
    assert pids(evidence(made)) == [pid]


def test_fresh_files(made):
    made.tensorflow("ckpt-1")
    now = time.time()
    os.utime(made.root / "ckpt-1.index", (now - 20, now - 20))
    found = foreign_writers(made.run, now)
    assert found.fresh_seconds == pytest.approx(20, abs=0.01)
    assert found.is_likely
    assert foreign_writers(made.run, now + 50).fresh_seconds is None
    temporary = made.temporary("ckpt-2", age=0)
    os.utime(temporary, (now - 3, now - 3))
    assert foreign_writers(made.run, now).fresh_seconds == pytest.approx(3, abs=0.01)


MOUNTS = rb"""/dev/vda1 / ext4 rw,relatime 0 0
server:/a /data nfs4 rw 0 0
/dev/vdb /data/scratch xfs rw 0 0
auto /home autofs rw 0 0
/dev/vdc /home EXT4 rw 0 0
me@host: /mnt/a\040b\134c fuse.sshfs rw 0 0
/dev/sda1 /usb/ fuseblk rw 0 0

broken /lost
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_network"),
    [
        ("/tmp/x", "ext4", False),
        ("/data", "nfs4", True),
        ("/data/runs/1", "nfs4", True),
        ("/database", "ext4", False),
        ("/data/scratch/run", "xfs", False),
        ("/home/me", "ext4", False),
        ("/mnt/a b\\c/run", "fuse.sshfs", True),
        ("/usb/run", "fuseblk", False),
    ],
)
def test_file_systems(monkeypatch, tmp_path, path, kind, is_network):
    table = tmp_path / "mounts"
    table.write_bytes(MOUNTS)
    monkeypatch.setattr(filesystems, "_MOUNT_TABLE", table)
    assert mounted_type(Path(path)) == kind
    assert is_network_file_system(Path(path)) is is_network


def test_this_one_is_found(tmp_path):
    assert mounted_type(tmp_path)


def test_without_a_mount_table_it_is_found_too(tmp_path, monkeypatch):
    known = mounted_type(tmp_path)
    monkeypatch.setattr(filesystems, "_MOUNT_TABLE", tmp_path / "none")
    assert mounted_type(tmp_path) == known


def test_on_a_network_a_save_is_given_more_time(made, monkeypatch):
    made.temporary("ckpt-1", age=0)
    now = made.root.joinpath("ckpt-1_temp").stat().st_mtime + 300
    assert Catalog(made.run).scan(now)[0].state is CheckpointState.ORPHANED
    assert foreign_writers(made.run, now).fresh_seconds is None
    monkeypatch.setattr(filesystems, "_mounts", lambda: {"/": "nfs"})
    assert Catalog(made.run).scan(now)[0].state is CheckpointState.WRITING
    found = foreign_writers(made.run, now)
    assert (found.fresh_seconds, found.other_machines) == (300, True)
