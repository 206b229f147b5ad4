"""Beside a trainer that is taken for dead, and whose lock is not shared, nothing is moved."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from rundir_factory import RunFactory, two_branches, without_heartbeats

from beating import beating, end
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.heartbeats import liveness
from tfckpt_trainer.rundir.heartbeats.reading import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_trainer.rundir.storage.locks import locked
from tfckpt_tui.services.control import prune
from tfckpt_tui.services.control.request import FrontEnd
from waiting import wait_until

TEST = FrontEnd.COMMAND_LINE


@pytest.fixture
def ended(tmp_path: Path) -> RunFactory:
    """A run whose trainer is gone."""
    return without_heartbeats(two_branches(tmp_path / "run"))


def files(run: RunDirectory) -> set[str]:
    return {
        path.relative_to(run.root).as_posix()
        for path in run.root.rglob("*")
        if path.is_file() and "status" not in path.parts and path.name not in _HOUSEKEEPING
    }


_HOUSEKEEPING = {"reserve", "trainer.lock", "trash.lock", "trash.json"}


def test_neither_prune_nor_undo_nor_emptying(
    ended: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this machine is ahead, and the processes of the other are not seen."""
    run = ended.run
    prune.prune(run, ["ckpt-100"], through=TEST)
    before = files(run)
    with beating(run, hidden=True, interval=0.2) as pid:
        real = time.time
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: real() + 10)
            assert not trainer_answers(run, time.time())
            for act in (
                lambda: prune.prune(run, ["ckpt-200"], through=TEST),
                lambda: prune.delete(run, ["ckpt-200"], through=TEST),
                lambda: prune.undo(run, through=TEST),
                lambda: prune.empty(run, [], through=TEST),
            ):
                with pytest.raises(RefusedError, match=r"A trainer is running .* worker 0 "):
                    act()
                assert files(run) == before
        end(pid)
        wait_until(lambda: not trainer_answers(run, time.time()), 10, "the heartbeat is old")
        monkeypatch.setattr(liveness, "WATCH_SECONDS", 0.5)
        assert prune.undo(run, through=TEST).names == ("ckpt-100",)


def test_a_worker_that_starts_is_told_as_such(ended: RunFactory) -> None:
    run = ended.run
    before = files(run)
    with beating(run, 1) as pid:
        # Its heartbeat stays as it is written here.
        os.kill(pid, signal.SIGSTOP)
        status = load(run.worker_status(1), WorkerStatus)
        store(run.worker_status(1), replace(status, activity=Activity.STARTING))
        with pytest.raises(RefusedError, match=rf"is starting in .* worker 1 \(process {pid}\)\."):
            prune.prune(run, ["ckpt-200"], through=TEST)
    assert files(run) == before


def test_where_the_lock_is_not_shared(ended: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client of such a file system locks a file of its own."""

    run = ended.run
    before = files(run)
    with beating(run, hidden=True) as pid:
        with locked(run.trainer_lock, 60, "test"):
            # The name is given to another file: to the next client nothing is locked.
            run.trainer_lock.rename(run.control / "trainer.lock.of-another-client")
            real = time.time
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda: real() + 10)
                with pytest.raises(RefusedError, match="A trainer is running"):
                    prune.prune(run, ["ckpt-200"], through=TEST)
        (run.control / "trainer.lock.of-another-client").unlink()
        assert files(run) == before
        end(pid)


def test_a_pin_is_set_whoever_lives(ended: RunFactory) -> None:
    with beating(ended.run, hidden=True):
        assert prune.set_pins(ended.run, ["ckpt-200"], pinned=True, through=TEST) == ()


def test_a_trainer_that_is_stopped_still_has_the_run(ended: RunFactory) -> None:
    """It may go on at any moment, and knows nothing of what was moved meanwhile."""
    with beating(ended.run) as pid:
        os.kill(pid, signal.SIGSTOP)
        long_ago = time.time() - 1000
        status = load(ended.run.worker_status(0), WorkerStatus)
        store(ended.run.worker_status(0), replace(status, updated_at=long_ago))
        with pytest.raises(RefusedError, match="A trainer is running"):
            prune.prune(ended.run, ["ckpt-200"], through=TEST)
        os.kill(pid, signal.SIGCONT)
