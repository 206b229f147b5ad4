"""What several training scripts do to themselves: restore in place, digest and watch state."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import google_crc32c
import keras
import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState


def request_restore(run_dir: str | Path, name: str) -> None:
    """Requests a restore, and waits until the chief has seen the request."""
    request(run_dir, CommandKind.RESTORE, name=name)


def request(run_dir: str | Path, kind: CommandKind, **arguments: Any) -> None:
    """Requests a command, and waits until the chief has seen the request."""
    queue = CommandQueue(RunDirectory(Path(run_dir)))
    command = queue.submit(kind, arguments, requested_by="test")
    # Steps are quicker than the chief polls its queue; it acts after the next one.
    while queue.look_up(command.id).state is CommandState.REQUESTED:
        time.sleep(0.01)


def digest(strategy: tf.distribute.Strategy, variables: Iterable[Any]) -> int:
    """Returns a checksum of the variables on every replica of this worker."""
    value = 0
    for variable in variables:
        raw = variable.value if isinstance(variable, keras.Variable) else variable
        for component in strategy.experimental_local_results(raw):
            value = google_crc32c.extend(value, component.numpy().tobytes())
    return value


def watch_iterators(path: str | Path) -> None:
    """Writes to a file when an iterator of tf.data is created, and which thread destroys it.

    Its lines are `created`, `main thread` and `other thread`.
    """
    create = OwnedIterator._create_iterator

    def write(line: str) -> None:
        with open(path, "a") as file:
            file.write(f"{line}\n")

    def note() -> None:
        in_main = threading.current_thread() is threading.main_thread()
        write("main thread" if in_main else "other thread")

    def create_and_watch(self: OwnedIterator, dataset: tf.data.Dataset) -> None:
        create(self, dataset)
        write("created")
        weakref.finalize(self._iterator_resource, note).atexit = False

    OwnedIterator._create_iterator = create_and_watch
