"""Agrees with the other workers on what happens when a dataset ends."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.training.steps.inputs import Inputs
from tfckpt_trainer.training.steps.step_functions import CallLength
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.counts import count

OnDatasetEnd = Literal["stop", "wait"]


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
    """Gives each call its input, and ends the run on all workers after the same step.

    The all-reduce of each call carries the flag of every worker, so this costs no collective of
    its own. The workers ask each other only before the first step, after a restore, when a
    dataset ends, and in loops without a step function.

    Attributes:
        has_data: Whether the input of the present step is this worker's own. If not, it repeats
            the last one, and is left out of the step.
    """

    def __init__(
        self,
        group: WorkerGroup,
        inputs: Inputs,
        telemetry: Telemetry,
        on_end: OnDatasetEnd,
        length: CallLength,
    ) -> None:
        """Creates it.

        Raises:
            UsageError: `on_end` is unknown.
        """
        if on_end not in ("stop", "wait"):
            raise UsageError(f'on_dataset_end is {on_end!r}; expected "stop" or "wait".')
        self._group = group
        self._inputs = inputs
        self._telemetry = telemetry
        self._waits = on_end == "wait"
        self._length = length
        self._must_ask = True
        self._all_endless: bool | None = None
        self._ended: frozenset[int] = frozenset()
        self._last: Any = None
        self._last_is_reduced: bool | None = None
        self.has_data = True

    @property
    def leaves_out(self) -> bool:
        """Whether a step may be without the data of some workers."""
        return self._waits and self._group.size > 1

    def refuse_calls_of_several_steps(self) -> None:
        """Raises an error if the workers cannot agree on how many steps a call has input for.

        Raises:
            UsageError: They cannot.
        """
        reader = self._inputs.reader
        if self._group.size == 1 or reader.is_endless:
            return
        if self._waits:
            raise UsageError(
                'steps_per_call does not go with on_dataset_end="wait" on several workers, unless '
                "the dataset repeats without end. Leave out one of them."
            )
        if reader.left is None:
            raise UsageError(
                "steps_per_call on several workers needs a dataset whose length is known before "
                "its end. Repeat it: dataset.repeat(), with total_steps. Or declare its length: "
                "dataset.apply(tf.data.experimental.assert_cardinality(N))."
            )

    @property
    def flag(self) -> bool:
        """Whether this worker may lack input for the next call, and no other knows it yet."""
        reader, most = self._inputs.reader, self._length.most
        if not self.has_data or most == 1 or reader.is_endless:
            return self.has_data and reader.is_last is not False
        return reader.left is None or reader.left < most

    def call_computed(self, flag: bool) -> None:
        """Takes the flags of all workers in one call: whether any of them is set."""
        self._must_ask = flag
        self._last_is_reduced = True

    def restored(self) -> None:
        """Has the workers ask each other again, because their positions in the data changed."""
        self._must_ask = True
        self._ended = frozenset()

    def skip(self, steps: int) -> int:
        """Drops the input of so many steps; returns how many this worker had."""
        reader, dropped = self._inputs.reader, 0
        while dropped < steps and (reader.is_endless or reader.has_next()):
            reader.read()
            dropped += 1
        self.restored()
        return dropped

    def next(self, steps: int) -> tuple[list[Any], float] | None:
        """Returns the inputs of a call and the seconds they took; None on all workers at the end.

        Args:
            steps: How many steps the call may run.
        """
        if self._must_ask and not self._is_endless:
            if self._is_over():
                return None
            steps = self._agreed(steps)
        self._must_ask = True
        self._last_is_reduced = False
        self.has_data = self._group.index not in self._ended
        if not self.has_data:
            return [self._inputs.blank() if self._last is None else self._last], 0.0
        batch, seconds = self._inputs.next()
        self._last = batch if self.leaves_out else None
        batches = [batch]
        # One worker finds the end by itself. Several have agreed that none will.
        while len(batches) < steps and (self._group.size > 1 or self._inputs.reader.has_next()):
            batch, more = self._inputs.next()
            batches.append(batch)
            seconds += more
        return batches, seconds

    def _agreed(self, steps: int) -> int:
        """Returns for how many of so many steps all workers have input; at least 1."""
        if steps == 1 or self._group.size == 1:
            return steps
        left = self._inputs.reader.left
        return min(steps, *self._group.all_gather(1 if left is None else left))

    @property
    def _is_endless(self) -> bool:
        if self._all_endless is None:
            self._all_endless = not self._group.any(not self._inputs.reader.is_endless)
        return self._all_endless

    def _is_over(self) -> bool:
        """Asks all workers whether they have data; returns whether the run is over."""
        reader = self._inputs.reader
        has_ended = not reader.has_next()
        if not self._group.any(has_ended and self._group.index not in self._ended):
            return False
        # After a restore at its end, nothing was read.
        read = reader.total if reader.steps is None and has_ended else reader.steps
        mine = WorkerSteps(worker=self._group.index, read=read, total=reader.total, ended=has_ended)
        workers = self._group.all_gather(mine)
        self._ended = frozenset(worker.worker for worker in workers if worker.ended)
        is_over = not self._waits or len(self._ended) == len(workers)
        if len(self._ended) < len(workers):
            self._note(workers, is_over=is_over)
        elif len({worker.read for worker in workers}) > 1:
            self._note(workers, is_over=True)
        if not is_over and self._last_is_reduced is False:
            raise UsageError(
                'on_dataset_end="wait" needs a step made by run.function: another step cannot '
                'leave out workers without data. Use on_dataset_end="stop".'
            )
        return is_over

    def _note(self, workers: list[WorkerSteps], *, is_over: bool) -> None:
        consequence = (
            "The run ends." if is_over else "The run continues with the workers that have more."
        )
        self._telemetry.note(
            EventKind.NOTE,
            f"{describe_unequal(workers)} {consequence}",
            details={"dataset_steps": [msgspec.to_builtins(worker) for worker in workers]},
        )


def describe_unequal(workers: list[WorkerSteps]) -> str:
    """Returns a sentence about each worker: whether its dataset has ended, and after what."""
    return " ".join(
        _ended(worker) if worker.ended else _has_more(worker)
        for worker in sorted(workers, key=lambda worker: not worker.ended)
    )


def _ended(worker: WorkerSteps) -> str:
    after = "" if worker.read is None else f" after {count(worker.read, 'step')}"
    return f"The dataset of worker {worker.worker} has ended{after}."


def _has_more(worker: WorkerSteps) -> str:
    has = "more" if worker.total is None else count(worker.total, "step")
    return f"Worker {worker.worker} has {has}."
