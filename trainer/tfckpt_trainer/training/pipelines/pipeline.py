"""One input pipeline: reads elements, and saves and restores what is possible of its position."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from tfckpt_trainer.rundir.records.exactness import InputPosition, PipelineFacts
from tfckpt_trainer.training.pipelines.iterators import destroy_iterator, recreate_iterator
from tfckpt_trainer.training.pipelines.obstacles import (
    Obstacle,
    file_caches,
    find_cache_obstacles,
    find_late_obstacles,
    find_obstacles,
    find_order_obstacles,
    static_tables,
)

SKIPPED_BETWEEN_REPORTS = 1000
"""Number of skipped elements after which progress is reported."""

POSITION_ERRORS = (
    tf.errors.FailedPreconditionError,
    tf.errors.UnimplementedError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
)
"""Errors of saving or restoring the position of an iterator that the pipeline causes."""

_IGNORE = tf.data.experimental.ExternalStatePolicy.IGNORE.value
_FAIL = tf.data.experimental.ExternalStatePolicy.FAIL.value


@dataclass(frozen=True)
class PositionProbe:
    """The result of a dry run: what of a position can be saved, and why not more."""

    position: InputPosition
    obstacles: tuple[Obstacle, ...] = ()

    def facts(self, name: str, *, skips: bool = False) -> PipelineFacts:
        """Returns what the record of a checkpoint says about the pipeline `name`."""
        # Python may have no state, but a pipeline that starts over has lost its position.
        may_be_exact = self.position is not InputPosition.COUNT
        python = [
            obstacle.cause for obstacle in self.obstacles if obstacle.is_python and may_be_exact
        ]
        return PipelineFacts(
            name=name,
            position=self.position,
            causes=[obstacle.cause for obstacle in self.obstacles if obstacle.cause not in python],
            python=python,
            remedies=list(dict.fromkeys(obstacle.remedy for obstacle in self.obstacles)),
            skips=skips and self.position is InputPosition.COUNT,
        )


def probe(iterator: tf.data.Iterator) -> PositionProbe:
    """Saves the position of an iterator to memory, to find out whether that is possible.

    If only the state of its operations cannot be saved, later saves leave out that state.
    """
    dataset, is_refused = iterator._dataset, False
    try:
        _serialize(iterator, _FAIL)
    except POSITION_ERRORS as error:
        obstacles, is_refused = find_obstacles(dataset, error), True
    else:
        obstacles = find_late_obstacles(dataset)
    saves_all = not (obstacles or is_refused)
    obstacles += find_order_obstacles(dataset) + find_cache_obstacles(dataset)
    at_best = InputPosition.POSITION if obstacles else InputPosition.EXACT
    if saves_all:
        return PositionProbe(at_best, obstacles)
    if any(obstacle.hides_position for obstacle in obstacles):
        return PositionProbe(InputPosition.COUNT, obstacles)
    try:
        _serialize(iterator, _IGNORE)
    except POSITION_ERRORS as error:
        return PositionProbe(InputPosition.COUNT, obstacles or find_obstacles(dataset, error))
    # The policy is an option of the dataset, but another dataset needs another iterator, which
    # draws other seeds for its shuffles.
    iterator._serialize_to_tensors = partial(_without_external_state, weakref.proxy(iterator))
    return PositionProbe(at_best, obstacles)


class Pipeline:
    """An input pipeline of this worker, and an iterator over its elements.

    Attributes:
        name: Its name, for messages.
        iterator: The iterator.
        tables: The static lookup tables that it uses.
        elements: Number of elements read since the start of the dataset; None if unknown.
        on_start_over: Called when the dataset starts again.
    """

    def __init__(self, name: str, iterator: tf.data.Iterator, *, skips: bool = False) -> None:
        """Finds out what of the position can be saved.

        Args:
            name: Its name.
            iterator: `iter(dataset)`, of which nothing was read.
            skips: Whether a restore skips the elements that were read, if only their number is
                saved.
        """
        self.name = name
        self.iterator = iterator
        self.tables = static_tables(iterator._dataset)
        self.elements: int | None = 0
        self.on_start_over: Callable[[], None] = lambda: None
        self._skips = skips
        self._probe = probe(self.iterator)

    @property
    def facts(self) -> PipelineFacts:
        """What the record of a checkpoint says about it."""
        return self._probe.facts(self.name, skips=self._skips)

    @property
    def saves_iterator(self) -> bool:
        """Whether a checkpoint can hold the iterator."""
        return self._probe.position in {InputPosition.EXACT, InputPosition.POSITION}

    @property
    def incomplete_cache(self) -> str:
        """The first cache in files that is not complete; empty if none is.

        TensorFlow crashes if a position is restored that reads a cache which is gone.
        """
        caches = file_caches(self.iterator._dataset)
        return next((file for file in caches if not tf.io.gfile.exists(f"{file}.index")), "")

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        element = next(self.iterator)
        if self.elements is not None:
            self.elements += 1
        return element

    def degrade(self) -> bool:
        """Finds out again what can be saved, after a save failed; it may be less than at the start.

        Returns:
            Whether it is less.
        """
        before = self._probe.position
        if self.saves_iterator:
            self._probe = probe(self.iterator)
        return self._probe.position is not before

    def start_over(self, elements: int | None, report: Callable[[str], None]) -> str:
        """Starts the dataset again, and skips elements if that is wanted.

        Args:
            elements: The number of elements that were read; None if unknown.
            report: Takes the progress of skipping, as a sentence.

        Returns:
            What was done, as a clause.
        """
        if self.elements != 0:
            recreate_iterator(self.iterator)
        # Otherwise it is at its start. A new one would shuffle with the seeds of another epoch.
        self.on_start_over()
        self.elements = 0
        if elements is None or not self._skips:
            return f"{self.name!r} starts over"
        for number in range(elements):
            if number % SKIPPED_BETWEEN_REPORTS == 0:
                report(f"Skips elements of {self.name!r}: {number:,} of {elements:,}.")
            try:
                next(self)
            except StopIteration:
                return f"{self.name!r} ended after {number:,} of {elements:,} skipped elements"
        return f"{self.name!r} starts over, after {elements:,} skipped elements"

    def close(self) -> None:
        """Destroys the iterator, without waiting for it."""
        destroy_iterator(self.iterator)


def _serialize(iterator: tf.data.Iterator, policy: int) -> tf.Tensor:
    return tf.raw_ops.SerializeIterator(
        resource_handle=iterator._iterator_resource, external_state_policy=policy
    )


def _without_external_state(iterator: tf.data.Iterator) -> dict[str, tf.Tensor]:
    """Returns the state of an iterator by its name in a checkpoint, as TensorFlow does."""
    return {"_STATE": _serialize(iterator, _IGNORE)}
