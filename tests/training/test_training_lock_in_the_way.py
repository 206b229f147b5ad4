"""A trainer that is started again gets its lock, whatever a colleague has put in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.paths import RunDirectory

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    "put", [Path.mkdir, lambda path: path.symlink_to("/etc/hosts")], ids=["directory", "link"]
)
def test_a_start_that_follows_another_makes_room_for_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None]
) -> None:
    from tfckpt_trainer.training.loop.run_ownership import RunOwnership

    run, told = RunDirectory(tmp_path), list[str]()
    run.create()
    put(run.trainer_lock)
    event_log = SimpleNamespace(note=lambda kind, message: told.append(message), run_id="")
    telemetry = SimpleNamespace(
        queue=CommandQueue(run), event_log=event_log, heartbeat=SimpleNamespace(file=event_log)
    )
    ownership = RunOwnership(run, telemetry)
    with pytest.raises(OSError, match=run.trainer_lock.name):
        ownership.acquire()
    monkeypatch.setenv("TFCKPT_ATTEMPT", "1")
    ownership.acquire()
    ownership.release()
    (aside,) = run.control.glob("trainer.lock.damaged-*")
    assert told == [f"{run.trainer_lock} is not a regular file. It is {aside.name} now."]
    assert run.trainer_lock.is_file() and not run.trainer_lock.is_symlink()
