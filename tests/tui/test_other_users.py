"""What others who may write to a run directory, or to one file, can make front ends run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from app_driving import opened, top, until_shown
from rundir_factory import RunFactory

from accounts import ALICE, BOB, GROUP, acting_as, replace_as, share, sleeping
from bundle_writing import write_floats
from command_running import Tool
from recorded_slurm import RecordedSlurm, job_line
from requirements import needs
from tfckpt_trainer.errors import LaunchError, NotTrustedError, UsageError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import encode, store
from tfckpt_trainer.rundir.storage.owners import user_name
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.dialogs.batch_job import SubmitJobDialog
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.control.force_stop import force_stop, plan_force_stop
from tfckpt_tui.services.control.job_control import cancel_waiting_job, submit_again
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.processes.export import script_of
from tfckpt_tui.services.runs.launch_form import form_like, form_of, launch_command
from tfckpt_tui.settings.config import read_config


def by_force(run: RunDirectory, **given: Any) -> object:
    """Cancels the job of a run as `stop --force` does."""
    return force_stop(run, plan_force_stop(run, given["scheduler"]), **given)


def launched(run: RunDirectory, touched: Path, mode: int = 0o600) -> LaunchOptions:
    """Stores a launch whose command leaves a file."""
    options = LaunchOptions(
        run_directory=str(run.root),
        command=(sys.executable, "-c", f"open({str(touched)!r}, 'w')"),
        working_directory=str(run.root),
        environment=(("PYTHONPATH", "/of/others"),),
    )
    run.create()
    store(run.launch_file, options)
    run.launch_file.chmod(mode)
    return options


def test_an_export_runs_no_command_that_others_could_have_written(
    tool: Tool, tmp_path: Path
) -> None:
    write_floats(tmp_path / "ckpt-1", [1.0])
    run, touched = RunDirectory(tmp_path), tmp_path / "touched"
    launched(run, touched, 0o666)
    done = tool("export", tmp_path, "1", "--yes")
    assert done.code == 4
    assert f"{run.launch_file} belongs to " in done.words
    assert f"run `chmod go-w {run.launch_file}`" in done.words
    assert not touched.exists()


def test_an_export_shows_the_command_and_its_environment_and_asks(
    tool: Tool, tmp_path: Path
) -> None:
    write_floats(tmp_path / "ckpt-1", [1.0])
    run, touched = RunDirectory(tmp_path), tmp_path / "touched"
    launched(run, touched)
    done = tool("export", tmp_path, "1")
    assert done.code == 4
    assert f"Runs {sys.executable} -c " in done.words
    assert f"in {tmp_path}, with PYTHONPATH=/of/others." in done.words
    assert "Give --yes." in done.words
    assert not touched.exists()
    assert tool("export", tmp_path, "1", "--yes").code == 1
    assert touched.exists()


@needs("root")
def test_an_export_of_a_run_of_a_colleague_asks_for_the_command(open_place: Path) -> None:
    run = RunDirectory(share(open_place))
    launched(run, run.root / "touched")
    os.chown(run.launch_file, ALICE, GROUP)
    with (
        acting_as(BOB),
        pytest.raises(UsageError, match=f"Only its owner, user {ALICE}, can read it. Give it: `"),
    ):
        script_of(run)


def test_an_export_is_not_written_through_a_link(tool: Tool, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    write_floats(run.root / "ckpt-1", [1.0])
    elsewhere, touched = tmp_path / "elsewhere", tmp_path / "touched"
    elsewhere.mkdir()
    (run.root / "exports").symlink_to(elsewhere)
    command = ("--", "touch", touched)
    done = tool("export", run.root, "1", "--yes", *command)
    assert done.code == 4
    assert f"{run.root / 'exports'} is a symbolic link; expected a directory" in done.words
    assert f"`rm {run.root / 'exports'}`. Or choose another path with --to." in done.words
    assert not touched.exists()
    # A path that the user names may lead anywhere.
    assert tool("export", run.root, "1", "--to", run.root / "exports/m.keras", *command).code == 1
    assert touched.exists()
    assert not list(elsewhere.iterdir())


def test_a_form_takes_no_launch_that_others_could_have_written(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    options = launched(run, tmp_path / "touched")
    assert form_of(run).first == options
    run.launch_file.chmod(0o620)
    for form in (form_of(run), form_like(run)):
        assert (form.first, form.command) == (None, "")
        assert f"`chmod go-w {run.launch_file}`" in form.note
    # Nor is it to be pasted.
    assert launch_command(run) == f"tfckpt-tui launch {run.shell_word} -- COMMAND"


async def test_a_launch_shows_its_environment_and_why_others_words_are_not_taken(
    ended: RunFactory, tmp_path: Path
) -> None:
    options = launched(ended.run, tmp_path / "touched")
    options = msgspec.structs.replace(options, environment=(("PYTHONPATH", "/of/\x1b[31mothers"),))
    store(ended.run.launch_file, options)
    async with opened(ended.run, size=(120, 40)) as pilot:
        await pilot.press("L")
        await until_shown(pilot, "With PYTHONPATH=/of/")
        assert "\x1b" not in top(pilot.app)
    ended.run.launch_file.chmod(0o666)
    async with opened(ended.run, size=(120, 40)) as pilot:
        await pilot.press("L")
        await until_shown(pilot, "other users may write to it")
        assert "PYTHONPATH" not in top(pilot.app)


def test_a_batch_script_that_others_could_have_written_is_not_submitted(
    ended: RunFactory, tmp_path: Path
) -> None:
    script = ended.run.job_script
    script.write_text("#!/bin/bash\n#SBATCH --nodes=1\n")
    script.chmod(0o666)
    options = launched(ended.run, tmp_path / "touched")
    store(ended.run.launch_file, msgspec.structs.replace(options, slurm=SlurmOptions()))
    slurm = RecordedSlurm()
    with pytest.raises(NotTrustedError, match="chmod go-w"):
        submit_again(ended.run, through=FrontEnd.APP, scheduler=Slurm(slurm))
    assert slurm.asked("sbatch") == 0
    dialog = SubmitJobDialog(RunSnapshot(at=0.0, root=ended.run.root), None, script)
    assert "other users may write to it" in dialog.refusal()


def test_actions_come_from_a_file_that_nobody_else_may_write(tmp_path: Path) -> None:
    place = tmp_path / "team.toml"
    place.write_text('[actions.evaluate]\ncommand = "true {path}"\n')
    place.chmod(0o600)
    link = tmp_path / "link.toml"
    link.symlink_to(place)
    for path in (place, link):
        assert "evaluate" in read_config(DEFAULT_KEYS, path).actions
    place.chmod(0o664)
    with pytest.raises(UsageError, match=r"chmod go-w .*The file defines actions"):
        read_config(DEFAULT_KEYS, place)
    place.write_text('[app]\ntheme = "tfckpt-light"\n')
    assert read_config(DEFAULT_KEYS, place).app.theme == "tfckpt-light"


@needs("root")
@pytest.mark.parametrize("stop", [cancel_waiting_job, by_force])
def test_no_batch_job_is_cancelled_because_another_user_names_it(
    ended: RunFactory, stop: Callable[..., object]
) -> None:
    """Slurm cancels for root the jobs of all users."""
    slurm = RecordedSlurm(job_line(user="root"))
    record = BatchJob(scheduler="slurm", id="1234", submitted_at=1795341252.0, script="")
    replace_as(BOB, ended.run.job_file, encode(record))
    with pytest.raises(LaunchError, match=f"job.json belongs to user {BOB}; expected root") as told:
        stop(ended.run, through=FrontEnd.APP, scheduler=Slurm(slurm))
    assert "`scancel 1234`" in str(told.value)
    replace_as(0, ended.run.job_file, encode(record))
    assert slurm.asked("scancel") == 0
    with suppress(LaunchError):
        stop(ended.run, through=FrontEnd.APP, scheduler=Slurm(slurm))
    assert slurm.asked("scancel")


@needs("root")
def test_a_heartbeat_that_names_a_process_of_somebody_else_is_named(
    open_place: Path, tool: Tool
) -> None:
    share(open_place)
    made = RunFactory(open_place).create()
    for step, parent in ((100, None), (200, "ckpt-100")):
        made.checkpoint(step, 0, parent)
    with sleeping() as process:
        made.worker(
            0,
            host=os.uname().nodename,
            pid=process.pid,
            process_started_at=psutil.Process(process.pid).create_time(),
            updated_at=time.time() - 90,
        )
        heartbeat = made.run.worker_status(0)
        os.chown(heartbeat, BOB, GROUP)
        said = tool("prune", open_place, "ckpt-100", "--yes")
        assert said.code == 4
        assert (
            f"{heartbeat} of {user_name(BOB)} calls process {process.pid} a trainer" in said.words
        )
        assert f"one of {user_name(ALICE)} and does not answer" in said.words
        heartbeat.unlink()
        assert "does not answer" not in tool("prune", open_place, "ckpt-100", "--dry-run").words
