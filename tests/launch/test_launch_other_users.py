"""What another user who may write to a run directory can make its owner, or root, run or kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from supervised import Run

from accounts import ALICE, BOB, GROUP, acting_as, replace_as, share, sleeping
from requirements import needs
from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch import launcher
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.slurm.batch_script import store_batch_script
from tfckpt_trainer.launch.slurm.nodes.node_check import check_node, token_file
from tfckpt_trainer.launch.supervision import stop
from tfckpt_trainer.launch.supervision.stop import stop_supervisor, wait_for_end
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import (
    EVENTS,
    RunInfo,
    SupervisorState,
    SupervisorStatus,
    WorkerProcess,
)
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.run_info import update_run_info
from tfckpt_trainer.rundir.storage.documents import encode, store
from waiting import MOST_SECONDS

pytestmark = [pytest.mark.e2e, needs("root")]


@pytest.fixture
def group_run(open_place: Path) -> Run:
    """A run directory of Alice to which her group may write."""
    run = Run(share(open_place))
    with acting_as(ALICE, 0o002):
        run.directory.create()
    for directory in (open_place / ".tfckpt", open_place / ".tfckpt/status"):
        share(directory)
    return run


def touching(path: Path) -> tuple[str, ...]:
    return ("/bin/sh", "-c", 'echo "$0" > "$1"', "done", str(path))


def forge(run: Run, command: tuple[str, ...], **changes: object) -> None:
    """Replaces what is launched, as Bob."""
    options = msgspec.structs.replace(run.options(workers=1), command=command, **changes)
    replace_as(BOB, run.directory.launch_file, encode(options))


def test_what_replaces_the_options_right_after_a_launch_never_runs(
    group_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged, own = (group_run.root / name for name in ("forged", "own"))

    def store_and_lose(path: Path, document: object, **given: object) -> None:
        store(path, document, **given)
        if path == group_run.directory.launch_file:
            with acting_as(0):
                forge(group_run, touching(forged))

    monkeypatch.setattr(launcher, "store", store_and_lose)
    options = msgspec.structs.replace(group_run.options(workers=1), command=touching(own))
    launch(options)
    wait_for_end(group_run.directory, 60, lambda alive: None)
    assert own.read_text() == "done\n"
    assert not forged.exists()


@pytest.mark.parametrize(
    "module", ["local.local_supervisor", "slurm.batch_step", "slurm.task_process"]
)
def test_options_of_another_user_are_not_executed(group_run: Run, module: str) -> None:
    forged = group_run.root / "forged"
    forge(group_run, touching(forged))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", f"tfckpt_trainer.launch.{module}", group_run.root],
        env={**os.environ, "SLURM_JOB_ID": "1", "SLURM_PROCID": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert f"launch.json belongs to user {BOB}; expected root" in ended.stderr
    assert "`install -m 600 " in ended.stderr and "Traceback" not in ended.stderr
    assert not forged.exists()


def test_a_node_reports_options_of_another_user(group_run: Run) -> None:
    forge(group_run, ("/bin/true",))
    token_file(group_run.directory, "token").write_text("token")
    report = check_node(group_run.directory, "token", "node", [])
    assert f"belongs to user {BOB}" in report.problem


def test_a_batch_script_is_a_new_file(group_run: Run) -> None:
    script = group_run.directory.job_script
    replace_as(BOB, script, b"#!/bin/sh\n", 0o666)
    with acting_as(ALICE, 0o002):
        store_batch_script(group_run.directory, "#!/bin/bash\n")
    facts = script.stat()
    assert facts.st_uid == ALICE and not facts.st_mode & 0o022


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of Alice that no run has started."""
    with sleeping() as process:
        yield process


def worker_of(process: subprocess.Popen[bytes]) -> bytes:
    """A heartbeat that names a process."""
    return encode(
        WorkerStatus(
            index=0,
            host=os.uname().nodename,
            pid=process.pid,
            process_started_at=psutil.Process(process.pid).create_time(),
            updated_at=time.time(),
            interval_seconds=1.0,
            activity=Activity.TRAINING,
            step=1,
        )
    )


def supervisor_of(process: subprocess.Popen[bytes], workers: bool) -> bytes:
    """A heartbeat that names a process as a supervisor, or as its worker."""
    started = psutil.Process(process.pid).create_time()
    return encode(
        SupervisorStatus(
            state=SupervisorState.RUNNING,
            host=os.uname().nodename,
            pid=1 if workers else process.pid,
            process_started_at=0.0 if workers else started,
            updated_at=time.time(),
            interval_seconds=1.0,
            workers=[WorkerProcess(index=0, pid=process.pid, process_started_at=started)]
            if workers
            else [],
        )
    )


@pytest.mark.parametrize("stopping", [0, ALICE], ids=["root", "the user"])
@pytest.mark.parametrize("kind", ["worker", "supervisor", "worker of a supervisor"])
@pytest.mark.parametrize("of", [BOB, ALICE], ids=["other file", "writable file"])
def test_no_process_is_ended_because_another_user_names_it(
    group_run: Run, victim: subprocess.Popen[bytes], kind: str, of: int, stopping: int
) -> None:
    run = group_run.directory
    name, data = {
        "worker": ("worker-0.json", worker_of(victim)),
        "supervisor": ("supervisor.json", supervisor_of(victim, False)),
        "worker of a supervisor": ("supervisor.json", supervisor_of(victim, True)),
    }[kind]
    path = run.status_directory / name
    replace_as(of, path, data, 0o644 if of == BOB else 0o664)
    with (
        acting_as(stopping),
        pytest.raises(LaunchError, match=f"{victim.pid} of user {ALICE} is not signaled") as told,
    ):
        stop_supervisor(run, 0.2)
    assert f"{path} belongs to user {of}" in str(told.value)
    assert f"`kill {victim.pid}`" in str(told.value)
    assert victim.poll() is None


def test_what_another_user_puts_there_is_not_written_again_at_the_end_of_a_run(
    group_run: Run, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = group_run.directory
    path = run.supervisor_status

    def note_and_forge(*given: Any, **options: Any) -> str:
        replace_as(BOB, path, supervisor_of(victim, True))
        return note_event(*given, **options)

    monkeypatch.setattr(stop, "note_event", note_and_forge)
    with sleeping(TFCKPT_RUN_DIR=str(run.root)) as process:
        replace_as(ALICE, run.worker_status(0), worker_of(process))
        assert stop_supervisor(run, 0.2)
    assert path.stat().st_uid == BOB
    with pytest.raises(LaunchError, match=f"{path} belongs to user {BOB}"):
        stop_supervisor(run, 0.2)
    assert victim.poll() is None


@pytest.mark.parametrize("of", [BOB, 0])
def test_a_directory_that_another_user_names_becomes_nobodys_word(group_run: Run, of: int) -> None:
    run = group_run.directory
    named = RunInfo(id="1", created_at=0.0, strategy="mirrored", tensorboard="/private")
    replace_as(of, run.run_file, encode(named))
    info = update_run_info(run)
    assert (info.id, info.strategy) == ("1", "mirrored")
    assert info.tensorboard == ("/private" if of == 0 else EVENTS)
    assert run.run_file.stat().st_uid == 0


def test_no_process_of_another_run_is_ended(group_run: Run, tmp_path: Path) -> None:
    """Who may rename files can put a heartbeat of one run into another."""
    other = RunDirectory(tmp_path / "other")
    other.create()
    with sleeping(TFCKPT_RUN_DIR=str(other.root)) as process:
        replace_as(ALICE, group_run.directory.worker_status(0), worker_of(process))
        with pytest.raises(LaunchError, match=f"belongs to the run {other.root}"):
            stop_supervisor(group_run.directory, 0.2)
        assert process.poll() is None
        os.rename(other.root, tmp_path / "moved")
        assert stop_supervisor(group_run.directory, 0.2)


def test_root_ends_what_the_user_of_a_process_names(
    group_run: Run, victim: subprocess.Popen[bytes]
) -> None:
    path = group_run.directory.worker_status(0)
    replace_as(ALICE, path, worker_of(victim))
    assert path.stat().st_gid == GROUP
    assert stop_supervisor(group_run.directory, 0.2)
    assert victim.wait(MOST_SECONDS) != 0
