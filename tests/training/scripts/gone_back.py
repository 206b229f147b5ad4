"""What the ports of public scripts add to them: a log, a restore in place and a sudden end."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf
from shared_parts import digest, request_restore

from tfckpt_trainer.training.keras_library import keras, variables_of
from tfckpt_trainer.training.state.variables import is_variable

SAVE_EVERY = 4


def parsed_arguments(as_published: str = "") -> argparse.Namespace:
    """Returns the arguments that every port takes.

    Args:
        as_published: What a port does under `--as-published`, if it takes that.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="one-device")
    parser.add_argument("--log", required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--random-seed", type=int)
    parser.add_argument("--go-back-at", type=int, help="restores ckpt-4, and ends at the next save")
    if as_published:
        parser.add_argument("--as-published", action="store_true", help=as_published)
    return parser.parse_args()


class StepLog:
    """Logs all variables after each step; once, goes back, and later kills the process."""

    def __init__(self, options: argparse.Namespace, strategy: tf.distribute.Strategy) -> None:
        self._go_back_at = options.go_back_at
        self._strategy = strategy
        self._worker = int(os.environ["TFCKPT_WORKER_INDEX"])
        self._path = Path(f"{options.log}-{self._worker}.jsonl")
        self._directory = Path(os.environ["TFCKPT_RUN_DIR"])
        self._last = 0
        self._has_gone_back = False
        self._next_save = ""

    def write(self, step: int, variables: Iterable[Any], **metrics: float) -> None:
        """Writes a line after the step with this number, and does what is due then."""
        values = {name: float(value).hex() for name, value in metrics.items()}
        line = {"step": step, "digest": digest(self._strategy, variables), **values}
        with self._path.open("a") as log:
            log.write(json.dumps(line) + "\n")
        if step <= self._last:
            self._has_gone_back = True
            # The name is free if the restore came before that save.
            is_taken = (self._directory / f"ckpt-{2 * SAVE_EVERY}.index").exists()
            self._next_save = f"ckpt-b1-{2 * SAVE_EVERY}" if is_taken else f"ckpt-{2 * SAVE_EVERY}"
        self._last = step
        if self._go_back_at is None:
            return
        if step == self._go_back_at and not self._has_gone_back and self._worker == 0:
            request_restore(self._directory, f"ckpt-{SAVE_EVERY}")
        if self._has_gone_back and step > 2 * SAVE_EVERY:
            while not (self._directory / f"{self._next_save}.index").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)


def log_fit(log: StepLog, model: keras.Model, *others: Any) -> keras.callbacks.Callback:
    """Returns a callback that logs each step of a `fit`.

    Args:
        log: The log.
        model: The model, whose optimizer counts the steps.
        *others: What has variables beside them.
    """

    def write(_: int, logs: dict[str, float]) -> None:
        owners = [model, model.optimizer, *model.metrics, *others]
        variables = [v for owner in owners for v in variables_of(owner) if is_variable(v)]
        log.write(int(model.optimizer.iterations.numpy()), variables, **logs)

    return keras.callbacks.LambdaCallback(on_train_batch_end=write)
