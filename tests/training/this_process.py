"""Training in the process of the tests, where TensorFlow is imported and has its caches."""

from __future__ import annotations

import runpy
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from training_cluster import SCRIPTS

from tfckpt_trainer.rundir.paths import parse_checkpoint_name
from tfckpt_trainer.rundir.storage import documents
from waiting import wait_until


@contextmanager
def put_back() -> Iterator[pytest.MonkeyPatch]:
    """Puts back what a run changes in its process: the handling of signals and errors."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    handlers = {number: signal.getsignal(number) for number in numbers}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "excepthook", sys.excepthook)
        patch.setattr(threading, "excepthook", threading.excepthook)
        patch.setattr(documents, "_training", threading.Event())
        yield patch
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run_here(script: str, *words: object, **environment: str) -> int:
    """Runs a script as `__main__`, and handles its error as the interpreter does.

    Returns:
        The exit status. The process goes on, so it suits a script that ends by itself.
    """
    with put_back() as patch:
        patch.syspath_prepend(SCRIPTS)
        patch.setattr(sys, "argv", [str(SCRIPTS / script), *map(str, words)])
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            if isinstance(end.code, int | None):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
    return 0


def until_taken(run: Any, seconds: float = 30) -> None:
    """Waits until the poller of a run has taken a command; it acts after the next step."""
    wait_until(lambda: run._between.coordinator.needs_sync, seconds, "the poller takes the command")


def copy_before(step: int, directory: Path, copied: Path) -> Path:
    """Copies a run directory as a crash leaves it: without its checkpoints from a step on."""
    shutil.copytree(directory, copied)
    for path in copied.rglob("*ckpt-*"):
        parsed = parse_checkpoint_name(path.name.partition(".")[0])
        if parsed and parsed.step >= step and path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return copied
