"""What happened to a run is understood from the failure card alone: real workers, real ends."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from supervised import Run

from real_file_systems import fill, small_tmpfs
from requirements import MEMORY_GROUPS, require
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.failure import OutOfMemory
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorState
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.reports.run_facts import FailureFacts
from tfckpt_tui.services.runs.failure_card import failure_rows
from tfckpt_tui.services.runs.report import status_report
from waiting import MOST_SECONDS, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def no_other_kill() -> Iterator[None]:
    """No other test has the kernel kill a process meanwhile, also of another run of the tests.

    The kernel counts the kills of the whole machine.
    """
    directory = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


GREEDY = """
import os, sys, time
from pathlib import Path
if os.environ["TFCKPT_WORKER_INDEX"] == "0":
    time.sleep(60)
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
blocks = []
for _ in range(1024):
    blocks.append(bytearray(os.urandom(1 << 20)))
"""

BUG = """import os, time

def lookup(rates):
    return rates["rate"]

print("loading", flush=True)
if os.environ["TFCKPT_WORKER_INDEX"] == "1":
    lookup({})
time.sleep(60)
"""


def card(run: Run) -> FailureFacts:
    failure = status_report(run.directory).failure
    assert failure is not None
    return failure


def text_of(failure: FailureFacts) -> str:
    return "\n".join(f"{label} {text}" for label, text in failure_rows(failure, failure.at or 0.0))


def test_a_bug_on_one_worker(run: Run) -> None:
    script = run.root.parent / "train.py"
    script.write_text(BUG)
    run.to_the_end(run.options(command=(sys.executable, str(script))))

    failure = card(run)
    assert (failure.worker, failure.exit_code) == (1, 1)
    assert failure.place == f"{script}:4"
    assert (failure.function, failure.source) == ("lookup", 'return rates["rate"]')
    assert failure.error == "KeyError: 'rate'"
    assert failure.log[0] == "loading"
    assert failure.next == "It failed at once and is not restarted. Nothing starts it again."
    assert failure.disk_free_bytes is not None
    assert text_of(failure).startswith("failure Worker 1 ended with status 1 at ")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group of 64 MB."""
    require("control groups")
    group = MEMORY_GROUPS / f"tfckpt-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


@pytest.mark.usefixtures("no_other_kill")
def test_a_worker_that_the_kernel_kills_for_lack_of_memory(run: Run, small_group: Path) -> None:
    options = run.options(command=(sys.executable, "-c", GREEDY, str(small_group)), max_restarts=0)
    assert run.to_the_end(options).state is SupervisorState.FAILED

    failure = card(run)
    assert (failure.worker, failure.exit_code) == (1, -signal.SIGKILL)
    assert failure.out_of_memory is OutOfMemory.ON_HOST
    assert "perhaps this one" in text_of(failure)
    why = "Worker 1 was killed by SIGKILL perhaps because memory ran out."
    assert run.status().reason.startswith(why)
    assert run.event_log(EventKind.WORKER_LOST)[0].message.startswith(why)
    assert (failure.place, failure.error) == ("", "")


@pytest.mark.usefixtures("no_other_kill")
def test_a_kill_from_outside_is_not_taken_for_lack_of_memory(run: Run) -> None:
    run.to_the_end(run.options("step", "w1:kill", "sleep=60", max_restarts=0))

    failure = card(run)
    assert failure.message == "Worker 1 was killed by SIGKILL."
    assert failure.out_of_memory is None
    assert failure.memory_limit_bytes
    assert failure.next == "No restarts are allowed. Nothing starts it again."


def test_a_restart_keeps_the_facts_until_the_run_trains(run: Run) -> None:
    again = ["a1:note-start=Resumed.", "a1:ready", "a1:wait-for=go", "a1:train=60"]
    actions = ["a0:step", "w1a0:say=ValueError: no", "w1a0:exit=1", "w0a0:sleep=60", *again]
    run.supervise(run.options(*actions))
    run.wait_for_file("ready-1")
    run.wait_until_ready()

    failure = card(run)
    assert failure.message == "Worker 1 ended with status 1."
    assert (failure.step, failure.lost_steps) == (1, 1)
    assert "ValueError: no" in failure.log
    assert failure.next == "All workers are starting again (restart 1 of 3)."
    (run.root / "go").touch()
    wait_until(lambda: status_report(run.directory).failure is None, 15, "no card")


def test_what_tensorflow_prints_at_its_start_is_no_part_of_the_card(run: Run) -> None:
    noise = [
        "I0000 00:00:1764000000.123456  123 coordination_service.cc:502] Worker 1 joined",
        "2026-11-24 14:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN is on",
        "W0000 00:00:1764000000.123456  123 cuda.cc:1] already registered",
    ]
    said = ["say=epoch 3", *(f"say={line}" for line in noise), "say=E0000 00:00:1.2 3 x.cc:1] no"]
    run.to_the_end(run.options(*said, "kill", workers=1, max_restarts=0))

    assert card(run).log == ("epoch 3", "E0000 00:00:1.2 3 x.cc:1] no")


def test_a_traceback_that_the_script_handled_is_not_the_cause(run: Run) -> None:
    code = """
import os, signal, traceback
try:
    {}["handled"]
except KeyError:
    traceback.print_exc()
os.kill(os.getpid(), signal.SIGKILL)
"""
    run.to_the_end(run.options(command=(sys.executable, "-c", code), workers=1, max_restarts=0))

    failure = card(run)
    assert failure.error == ""
    assert "KeyError: 'handled'" in failure.log


def test_a_crash_in_native_code(run: Run) -> None:
    script = run.root.parent / "train.py"
    script.write_text("import ctypes\n\ndef peek():\n    ctypes.string_at(0)\n\npeek()\n")
    run.to_the_end(run.options(command=(sys.executable, str(script)), workers=1, max_restarts=0))

    failure = card(run)
    assert failure.message == "Worker 0 was killed by SIGSEGV."
    assert (failure.place, failure.function) == (f"{script}:4", "peek")
    assert failure.error == "Segmentation fault"


def test_a_full_disk(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\n"
        "with open(os.environ['TFCKPT_RUN_DIR'] + '/data', 'wb', buffering=0) as file:\n"
        "    for _ in range(1024):\n"
        "        file.write(b'x' * (1 << 16))\n"
    )
    with small_tmpfs(tmp_path / "disk", megabytes=4) as disk:
        run = Run(disk / "run")
        run.to_the_end(run.options(command=(sys.executable, str(script)), workers=1))

        failure = card(run)
        assert "OSError: [Errno 28] No space left on device" in text_of(failure)
        assert f"{script}:4" in text_of(failure)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_launch_on_a_full_disk_says_where_and_what_to_do(tmp_path: Path, is_known: bool) -> None:
    with small_tmpfs(tmp_path / "disk") as disk:
        run = Run(disk / "run")
        if is_known:
            run.directory.create()
        fill(disk)
        words = r"Training cannot start in .*/run: .*/run/.*: No space left on device\. .*again\."
        with pytest.raises(TfckptError, match=words):
            launch(run.options("sleep=60", workers=1))


def test_a_worker_lost_on_a_full_disk_is_named_although_nothing_can_be_noted(
    tmp_path: Path,
) -> None:
    with small_tmpfs(tmp_path / "disk", megabytes=4) as disk:
        run = Run(disk / "run")
        # As a trainer does; the next start writes its cluster there.
        run.directory.create()
        store(run.directory.run_file, RunInfo(id="run", created_at=1.0))
        supervisor = run.supervise(run.options("step", "ready", "sleep=60"))
        killed = int(run.wait_for_file("ready-1"))
        run.wait_for_file("ready-0")
        fill(disk)
        os.kill(killed, signal.SIGKILL)
        supervisor.wait(MOST_SECONDS)
        assert run.status().state is SupervisorState.FAILED

        text = text_of(card(run))
        assert text.startswith("failure Worker 1 was killed by SIGKILL")
        assert "The disk of the run directory is full, so the workers cannot start." in text
        assert "Free space, then launch the run again." in text


def test_a_worker_that_stands_still_says_where_the_others_wait(run: Run) -> None:
    run.supervise(run.options("step", "ready", "w0:train=60", "w1:sleep=60"))
    stopped = int(run.wait_for_file("ready-1"))
    os.kill(stopped, signal.SIGSTOP)

    failure = wait_until(lambda: status_report(run.directory).failure, 30, "the card")
    assert failure.worker == 1
    assert f"kill -CONT {stopped}" in failure.message
    assert failure.next == "The supervisor waits: it restarts all workers only when one ends."
    os.kill(stopped, signal.SIGCONT)


def test_a_worker_that_was_waited_for_is_the_lost_one(run: Run) -> None:
    actions = "step", "ready", "w1:sleep=60", "wait-for=ready-1", "wait-for=silent", "end=peer lost"
    run.supervise(run.options(*actions, "exit=75", max_restarts=0))
    run.wait_until_ready()
    os.kill(int(run.wait_for_file("ready-1")), signal.SIGSTOP)
    (run.root / "silent").touch()
    run.wait_for(SupervisorState.FAILED)

    failure = status_report(run.directory).failure
    assert (failure.worker, failure.exit_code) == (1, None)
    assert "Worker 1 did not react, and then worker 0 ended with status 75" in failure.message
