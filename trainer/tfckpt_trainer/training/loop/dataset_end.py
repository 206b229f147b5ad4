"""Ends a run with its dataset, on all workers after the same step."""

from __future__ import annotations

from typing import Any

import msgspec

from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.training.loop.inputs import Inputs
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.worker_group import WorkerGroup


class WorkerSteps(msgspec.Struct, frozen=True, kw_only=True):
    """How many steps the dataset of one worker has.

    Attributes:
        read: Steps that were read; None if unknown.
        total: All steps; None if unknown or endless.
        ended: Whether it has no more.
    """

    worker: int
    read: int | None
    total: int | None
    ended: bool


class DatasetEnd:
    """Tells whether all workers have a batch for the next step.

    The all-reduce of each step carries the flag of every worker, so this costs no collective of
    its own. The workers ask each other only before the first step, after a restore, at the end
    of a dataset, and in loops without a step function.
    """

    def __init__(self, group: WorkerGroup, inputs: Inputs, telemetry: Telemetry) -> None:
        self._group = group
        self._inputs = inputs
        self._telemetry = telemetry
        self._must_ask = True
        self._all_endless: bool | None = None

    @property
    def flag(self) -> bool:
        """Whether this worker may have no batch for the next step."""
        return self._inputs.reader.is_last is not False

    def step_computed(self, flag: bool) -> None:
        """Takes the flags of all workers in one step: whether any of them is set."""
        self._must_ask = flag

    def restored(self) -> None:
        """Has the workers ask each other again, because their positions have changed."""
        self._must_ask = True

    def next(self) -> tuple[Any, float] | None:
        """Returns what `Inputs.next` does, or None on all workers if one has no more."""
        if self._must_ask and not self._is_endless and self._any_has_ended():
            return None
        self._must_ask = True
        return self._inputs.next()

    @property
    def _is_endless(self) -> bool:
        if self._all_endless is None:
            self._all_endless = not self._group.any(not self._inputs.reader.is_endless)
        return self._all_endless

    def _any_has_ended(self) -> bool:
        reader = self._inputs.reader
        has_ended = not reader.has_next()
        if not self._group.any(has_ended):
            return False
        mine = WorkerSteps(
            worker=self._group.index, read=reader.steps, total=reader.total, ended=has_ended
        )
        workers = self._group.all_gather(mine)
        if not all(worker.ended for worker in workers):
            self._telemetry.note(
                JournalKind.NOTE,
                f"{describe_unequal(workers)} The run ends with the shortest dataset.",
                details={"dataset_steps": [msgspec.to_builtins(worker) for worker in workers]},
            )
        return True


def describe_unequal(workers: list[WorkerSteps]) -> str:
    """Returns a sentence about each worker whose dataset has ended, and about the others."""
    ended = [worker for worker in workers if worker.ended]
    sentences = [
        f"The dataset of worker {worker.worker} has ended"
        + ("." if worker.read is None else f" after {_count(worker.read)}.")
        for worker in ended
    ]
    sentences += [
        f"Worker {worker.worker} has "
        + ("more." if worker.total is None else f"{_count(worker.total)}.")
        for worker in workers
        if not worker.ended
    ]
    return " ".join(sentences)


def _count(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps} steps"
