"""What several training scripts do to themselves: restore in place, and digest their state."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import google_crc32c
import keras
import tensorflow as tf

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState


def request_restore(run_dir: str | Path, name: str) -> None:
    """Requests a restore, and waits until the chief has seen the request."""
    queue = CommandQueue(RunDirectory(Path(run_dir)))
    command = queue.submit(CommandKind.RESTORE, {"name": name}, requested_by="test")
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
