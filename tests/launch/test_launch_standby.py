"""Processes that stand by: which commands they can become, and that workers come of them."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.local.standby import MODULE, Program, as_program
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.orphans import read_supervisor
from tfckpt_trainer.launch.stop import stop_supervisor
from tfckpt_trainer.rundir.health import read_workers
from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalKind
from waiting import wait_until

SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "steered.py"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ([sys.executable, "train.py", "--steps", "5"], Program("", ("train.py", "--steps", "5"))),
        ([sys.executable, "-u", "train.py"], Program("", ("train.py",))),
        (
            [sys.executable, "-m", "package.train", "-x"],
            Program("package.train", ("package.train", "-x")),
        ),
        ([sys.executable, "-c", "print()"], None),
        ([sys.executable, "-X", "dev", "train.py"], None),
        ([sys.executable], None),
        (["bash", "train.sh"], None),
        (["/no/such/python", "train.py"], None),
    ],
)
def test_only_a_script_of_this_python_can_be_become(command, program):
    assert as_program(command) == program


def alive(run, step):
    """The heartbeats of both workers once they are beyond `step`."""

    def beyond():
        workers = read_workers(run)
        return workers if len(workers) == 2 and all(w.step > step for w in workers) else None

    return wait_until(beyond, 90, f"step {step}")


def handles_ends_of_children(pid):
    """Whether a process handles SIGCHLD; one that stands by does so once it has imported all."""
    status = Path(f"/proc/{pid}/status").read_text()
    handled = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)
    return bool(handled >> (signal.SIGCHLD - 1) & 1)


def standing_by(run):
    """The process that stands by beside a run, once it has imported all."""
    supervisor = psutil.Process(read_supervisor(run).pid)

    def ready():
        for child in supervisor.children():
            if MODULE in child.cmdline() and handles_ends_of_children(child.pid):
                return child if child.status() == psutil.STATUS_SLEEPING else None
        return None

    return wait_until(ready, 90, "a process that stands by")


@pytest.mark.tensorflow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely here")
def test_after_a_death_workers_come_of_the_process_that_stands_by(tmp_path):
    run = RunDirectory(tmp_path / "run")
    launch(
        LaunchOptions(
            run_directory=str(run.root),
            command=(sys.executable, str(SCRIPT), "--save-every", "20"),
            working_directory=str(tmp_path),
            workers=2,
        )
    )
    try:
        first = alive(run, 25)
        waiting = standing_by(run)
        os.kill(first[1].pid, signal.SIGKILL)
        wait_until(
            lambda: not {w.pid for w in read_workers(run)} & {w.pid for w in first}, 60, "others"
        )
        second = alive(run, 25)
        assert {psutil.Process(w.pid).ppid() for w in second} == {waiting.pid}
        assert len({os.getsid(w.pid) for w in second}) == 2
        assert all(Path(f"/proc/{w.pid}/cwd").resolve() == tmp_path.resolve() for w in second)

        # Without it the workers are started from nothing, as the first time.
        waiting.kill()
        os.kill(second[0].pid, signal.SIGKILL)
        wait_until(
            lambda: not {w.pid for w in read_workers(run)} & {w.pid for w in second}, 60, "others"
        )
        third = alive(run, 25)
        parents = {psutil.Process(w.pid).ppid() for w in third}
        assert parents == {read_supervisor(run).pid}
    finally:
        stop_supervisor(run, 20, by="test")
    restarts = [entry for entry in read_entries(run) if entry.kind is JournalKind.RESTART]
    assert len(restarts) == 2
    assert not [p for p in psutil.process_iter() if str(tmp_path) in " ".join(_words(p))]


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
