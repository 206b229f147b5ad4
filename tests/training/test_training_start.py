"""Each phase of a start, as it is seen from outside; real workers under a real supervisor."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from training_cluster import SCRIPTS

from front_ends import Said, what_all_say
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import PauseArguments
from tfckpt_tui.reports.run_facts import StatusReport
from tfckpt_tui.services.control.request import FrontEnd, ask
from tfckpt_tui.services.runs.report import status_report
from tfckpt_tui.services.runs.stacks import read_stacks
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

PARTS = ("import", "prepare", "build", "step")


@pytest.fixture(params=[False, *weekly(True)], ids=["waits", "restarts"])
def restarts(request: pytest.FixtureRequest) -> bool:
    """Whether the run is soon restarted after a death, or waits before that."""
    return bool(request.param)


@pytest.fixture
def run(tmp_path: Path, restarts: bool) -> Iterator[RunDirectory]:
    """A run of two workers whose start is held at each of its parts."""
    for part in PARTS:
        (tmp_path / part).touch()
    run = RunDirectory(tmp_path / "run")
    launch(
        LaunchOptions(
            run_directory=str(run.root),
            command=(sys.executable, str(SCRIPTS / "held_start.py"), str(tmp_path)),
            working_directory=str(tmp_path),
            workers=2,
            grace_seconds=1,
            standby=restarts,
            pause_seconds=1 if restarts else 600,
        )
    )
    yield run
    stop_supervisor(run, 5)


def phases(report: StatusReport) -> list[str | None]:
    assert report.run.state == "starting", report
    return [worker.phase for worker in report.workers]


def held_at(run: RunDirectory) -> list[str]:
    """Returns the function of the script that each worker is in; empty if it does not answer."""
    frames = [
        [frame for thread in worker.threads if thread.is_main for frame in thread.frames]
        for worker in read_stacks(run, 30).workers
    ]
    return [next((f for f in reversed(own) if "held_start.py" in f), "") for own in frames]


def await_state(run: RunDirectory, state: str) -> Said:
    """Waits until all front ends say the same of a run in this state; returns what one says.

    While it trains, one looks later than the other, and may see a later step.
    """

    def wanted() -> Said | None:
        said = list(what_all_say(run).values())
        same = [(one, branch, 0 if one == "training" else step) for one, step, branch in said]
        return said[0] if set(same) == {same[0]} and said[0][0] == state else None

    return wait_until(wanted, 120, f"one account of a run that is {state}")


def test_all_front_ends_tell_the_phases_of_a_start_and_what_follows_it(
    run: RunDirectory, restarts: bool
) -> None:
    place = run.root.parent

    def await_phases(*expected: str) -> None:
        wait_until(
            lambda: phases(status_report(run)) == list(expected), 120, f"the phases {expected}"
        )

    await_phases("import", "import")
    assert await_state(run, "starting") == ("starting", 0, 0)
    (place / "import").unlink()
    await_phases("prepare", "prepare")
    # The script still imports our library.
    wait_until(
        lambda: [frame.rsplit(" ", 1)[-1] for frame in held_at(run)] == ["hold", "hold"],
        120,
        "the stacks of two workers that are held",
    )
    (place / "prepare-1").touch()
    (place / "prepare").unlink()
    # Worker 0 waits for worker 1.
    await_phases("join", "prepare")
    (place / "prepare-1").unlink()
    await_phases("build", "build")
    (place / "build").unlink()
    # Its first step, which waits: no number of it is known, so it does not train yet.
    await_phases("script", "script")
    report = status_report(run)
    assert [worker.state for worker in report.workers] == ["starting", "starting"]
    assert (report.run.step, report.alerts) == (0, ())
    (place / "step").unlink()
    wait_until(lambda: status_report(run).run.checkpoint, 120, "a checkpoint")
    state, step, branch = await_state(run, "training")
    assert (state, branch) == ("training", 0)
    assert step is not None and step > 0
    supervisor = read_supervisor(run)
    assert supervisor is not None
    assert supervisor.longest_start_seconds is not None

    ask(run, PauseArguments(), through=FrontEnd.COMMAND_LINE)
    assert await_state(run, "paused")[1] == status_report(run).workers[0].step
    (place / "build").touch()
    os.kill(read_workers(run)[1].pid, signal.SIGKILL)
    newest = wait_until(lambda: status_report(run).run.checkpoint, 60, "its checkpoint")
    state, step, branch = await_state(run, "restarting")
    assert (f"ckpt-{step}", branch) == (newest, 0)
    if restarts:
        # Until then, the workers of the next attempt told their phases.
        (place / "build").unlink()
        assert await_state(run, "training")[2] == 0
