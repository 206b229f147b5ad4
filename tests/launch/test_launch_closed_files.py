"""What a start says if a file of the run is closed to its user, or is a link."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from accounts import ALICE, BOB, GROUP, acting_as, share
from requirements import needs
from tfckpt_trainer.errors import TfckptError, UsageError, describe_error
from tfckpt_trainer.launch.preflight import check_directory
from tfckpt_trainer.launch.processes.logs import open_log
from tfckpt_trainer.launch.processes.named_processes import not_permitted
from tfckpt_trainer.launch.supervision.supervisor import why_no_start
from tfckpt_trainer.rundir.full_disk import explain_disk_errors
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.locks import take_lock

pytestmark = needs("root")


@pytest.fixture
def run(open_place: Path) -> RunDirectory:
    """A run of Alice that her group shares."""
    run = RunDirectory(share(open_place))
    with acting_as(ALICE):
        run.create()
    return run


def close(path: Path) -> str:
    """Leaves a file of Alice that only she may write; returns what a colleague is told of it."""
    path.write_text("")
    os.chown(path, ALICE, GROUP)
    path.chmod(0o644)
    return f"To share {path}, user {ALICE} runs `chmod g+rw {path}`"


def test_a_lock_and_a_log_name_their_owner_and_the_command(run: RunDirectory) -> None:
    for path, act in (
        (run.supervisor_lock, lambda: take_lock(run.supervisor_lock)),
        (run.supervisor_log, lambda: open_log(run.supervisor_log, 0, ["python"])),
    ):
        told = close(path)
        with acting_as(BOB), pytest.raises(PermissionError) as refused:
            act()
        with acting_as(BOB):
            assert told in describe_error(refused.value)


def test_a_log_that_is_closed_is_no_fault_of_the_command(run: RunDirectory) -> None:
    log = run.worker_log(0)
    told = close(log)
    with acting_as(BOB):
        with pytest.raises(PermissionError) as refused:
            open_log(log, 0, ["python"])
        assert why_no_start(refused.value).startswith(f"The workers cannot start: {log}: ")
        assert told in why_no_start(refused.value)
    missing = FileNotFoundError(2, "No such file or directory", "python")
    assert why_no_start(missing) == (
        "The command cannot be run: python: No such file or directory."
    )


def test_a_trainer_says_how_it_gets_its_lock_or_that_a_link_is_in_the_way(
    run: RunDirectory,
) -> None:
    told = close(run.trainer_lock)
    with acting_as(BOB), pytest.raises(TfckptError) as refused, explain_disk_errors(run):
        os.close(take_lock(run.trainer_lock))
    assert f"{told}. If they have no part in this run, move it away: `mv " in str(refused.value)
    assert str(refused.value).endswith("Then start again.")
    run.trainer_lock.unlink()
    run.trainer_lock.symlink_to("/etc/hosts")
    with pytest.raises(TfckptError) as refused, explain_disk_errors(run):
        os.close(take_lock(run.trainer_lock))
    assert str(refused.value).endswith("Move the link away. Then start again.")


def test_a_launch_in_a_closed_directory_names_who_opens_it(open_place: Path) -> None:
    run = RunDirectory(share(open_place))
    run.root.chmod(0o755)
    with acting_as(BOB), pytest.raises(UsageError) as refused:
        check_directory(run)
    command = str(refused.value).split("`")[1]
    assert f"its owner, user {ALICE}" in str(refused.value)
    subprocess.run(command, shell=True, check=True, user=ALICE, extra_groups=[GROUP])
    with acting_as(BOB):
        check_directory(run)


def test_nobody_opens_what_is_above_a_run_for_it() -> None:
    with acting_as(BOB), pytest.raises(UsageError, match=r"Choose another one\.$"):
        check_directory(RunDirectory(Path("/usr") / "run"))


def test_a_process_of_another_user_is_named_with_its_user() -> None:
    error = not_permitted("TensorBoard (process 1)", 1)
    assert str(error) == (
        "TensorBoard (process 1) belongs to root (user 0) and cannot be ended by you. "
        "End it as that user: `kill 1`."
    )
