"""A worker without TensorFlow that does what its arguments say, one after the other.

An argument is `[wINDEX][aATTEMPT]:VERB[=VALUE]`, or just `VERB[=VALUE]` for all workers and
attempts. Each verb imports what it needs: many workers only end, or sleep.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfckpt_trainer.rundir.records.command import Command

INDEX = int(os.environ["TFCKPT_WORKER_INDEX"])
ATTEMPT = int(os.environ["TFCKPT_ATTEMPT"])
ROOT = os.environ["TFCKPT_RUN_DIR"]


last_step: dict[str, float] = {}


def run_directory():
    from pathlib import Path

    from tfckpt_trainer.rundir.paths import RunDirectory

    return RunDirectory(Path(ROOT))


def beat(activity: str, **facts) -> None:
    from tfckpt_trainer.rundir.heartbeats.process_table import own_process
    from tfckpt_trainer.rundir.records import worker
    from tfckpt_trainer.rundir.storage.documents import store

    last_step.update({key: facts.pop(key) for key in ("last_step_at",) if key in facts})
    for name, kind in (("ending", worker.Ending), ("phase", worker.Phase)):
        if name in facts:
            facts[name] = kind(facts[name])
    store(
        run_directory().worker_status(INDEX),
        worker.WorkerStatus(
            index=INDEX,
            host=os.uname().nodename,
            **own_process()._asdict(),
            directory=run_directory().identity(),
            updated_at=time.time(),
            interval_seconds=1.0,
            activity=worker.Activity(activity),
            step=facts.pop("step", 0),
            **last_step,
            **facts,
        ),
    )


def write_own(name: str, text: object) -> None:
    # Tests take a file that exists for one that is written.
    place = os.path.join(ROOT, f"{name}-{INDEX}")
    with open(f"{place}.new", "w") as file:
        file.write(str(text))
    os.rename(f"{place}.new", place)


def on_term(_number, _frame) -> None:
    write_own("saved", ATTEMPT)
    beat("exited", ending="preempted")
    sys.exit(0)


def save_on_term(_value: str) -> None:
    # A second signal would come in the midst of the imports for the first.
    import psutil  # noqa: F401

    import tfckpt_trainer.rundir.records.worker
    import tfckpt_trainer.rundir.storage.documents  # noqa: F401

    signal.signal(signal.SIGTERM, on_term)


def start_child(_value: str) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    import subprocess

    write_own("child", subprocess.Popen([sys.executable, "-c", stubborn]).pid)


def train(value: str) -> None:
    """Trains for some seconds."""
    end = time.monotonic() + float(value)
    while time.monotonic() < end:
        beat("training", step=1, last_step_at=time.time())
        time.sleep(0.05)


def claim(_value: str) -> Command:
    """Trains until it gets a command, and does not act on it."""
    from tfckpt_trainer.rundir.command_queue import CommandQueue

    box = CommandQueue(run_directory())
    while (command := box.claim(time.time())) is None:
        train("0.05")
    write_own("claimed", command.id)
    return command


def serve_a_stop(value: str) -> None:
    """Trains until it is told to stop, and says that it has; what is left is its own affair."""
    from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
    from tfckpt_trainer.rundir.records.command import CommandState

    command = claim(value)
    # A step, or a validation after it, may take long.
    train(value or "0")
    words = "Stopped after step 1."
    write("stop", message=words, by=command.requested_by)
    CommandQueue(run_directory()).finish(advance(command, CommandState.DONE, words))
    beat("exited", ending="stopped")
    write_own("stopped", command.id)


def answer(_value: str) -> None:
    """Has a thread say at which line this is, whoever asks."""
    from tfckpt_trainer.rundir.heartbeats.stack_writer import answer_before_run

    answer_before_run(run_directory(), INDEX)


def note_start(value: str) -> None:
    """Says that a checkpoint was restored, as a trainer does before its first step."""
    write("start", message=value, step=20)
    beat("starting", phase="step")


def write(kind: str, **facts) -> None:
    """Writes an entry of the event log."""
    from tfckpt_trainer.rundir.event_log import write_entry
    from tfckpt_trainer.rundir.records.event import EventEntry, EventKind

    write_entry(run_directory(), EventEntry(at=time.time(), kind=EventKind(kind), **facts))


def wait_for(value: str) -> None:
    while not os.path.exists(os.path.join(ROOT, value)):
        time.sleep(0.01)


def die(value: str) -> None:
    beat("exited", ending="failed", detail=value)
    sys.exit(1)


def note_devices(_value: str) -> None:
    """Writes the GPUs that this process may see, and what TensorFlow knows of devices so far."""
    module = sys.modules.get("tensorflow.python.eager.context")
    context = module.context() if module is not None else None
    touched = context and [context._context_handle, context._physical_devices]
    write_own(f"devices-{ATTEMPT}", (os.environ["CUDA_VISIBLE_DEVICES"], touched))


def note_draw(_value: str) -> None:
    """Writes the first random number of NumPy, if this process came with it."""
    numpy = sys.modules.get("numpy")
    write_own(f"draw-{ATTEMPT}", numpy and float(numpy.random.random()))


VERBS = {
    "answer": answer,
    "note-devices": note_devices,
    "note-draw": note_draw,
    "note-start": note_start,
    "say": lambda value: print(value, flush=True),
    "environment": lambda _: write_own("environment", dict(os.environ)),
    "beat": lambda _: beat("starting"),
    "step": lambda _: beat("training", step=1, last_step_at=time.time()),
    "save-after-step": lambda value: beat("saving", step=int(value), last_step_at=time.time()),
    "end": lambda value: beat("exited", ending=value),
    "die": die,
    "wait-for": wait_for,
    "train": train,
    "claim": claim,
    "serve-a-stop": serve_a_stop,
    "sleep": lambda value: time.sleep(float(value)),
    "exit": lambda value: sys.exit(int(value)),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "save-on-term": save_on_term,
    "fail-on-term": lambda value: signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(value))),
    "ignore-term": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "child": start_child,
    "ready": lambda _: write_own("ready", os.getpid()),
}

for argument in sys.argv[1:]:
    action = re.fullmatch(r"(?:(?:w(\d+))?(?:a(\d+))?:)?([a-z-]+)(?:=(.*))?", argument)
    worker, attempt, verb, value = action.groups()
    if worker in {None, str(INDEX)} and attempt in {None, str(ATTEMPT)}:
        VERBS[verb](value or "")
