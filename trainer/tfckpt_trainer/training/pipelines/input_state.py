"""The state of all input pipelines of one worker, as a checkpoint holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.bundle.opened import opened_checkpoint
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.exactness import InputPosition, PipelineFacts
from tfckpt_trainer.training.pipelines.iterators import recreate_iterator
from tfckpt_trainer.training.pipelines.pipeline import POSITION_ERRORS, Pipeline, probe
from tfckpt_trainer.training.state.adapted import Adapted, FixedTable
from tfckpt_trainer.training.state.variables import live_objects

KEY = "input"
"""Name of the iterators in the checkpoint of a worker."""


@dataclass
class RestoredInputs:
    """What a restore did with the pipelines of one worker.

    Attributes:
        done: A clause for each pipeline that is not at its exact position.
        unfit: Names of pipelines that start over because their position did not fit.
        starts_over: Whether a pipeline is not at the position that was saved.
    """

    done: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    starts_over: bool = False


class InputState:
    """Saves and restores what is possible of the positions of pipelines.

    Iterators are part of the worker's `tf.train.Checkpoint`; numbers of elements are stored beside
    it.

    Attributes:
        report: Takes the progress of a restore, as a sentence.
    """

    def __init__(self, pipelines: Mapping[str, Pipeline] | None = None, *, named: bool = False):
        """Collects the pipelines.

        Args:
            pipelines: By name.
            named: Whether the script named them. Otherwise there is at most one.
        """
        self._pipelines = dict(pipelines or {})
        self._named = named
        self._others: list[PipelineFacts] = []
        self.report: Callable[[str], None] = lambda _: None

    @property
    def facts(self) -> list[PipelineFacts]:
        """What a checkpoint holds of each pipeline."""
        return [*(pipeline.facts for pipeline in self._pipelines.values()), *self._others]

    @property
    def adapted(self) -> list[Adapted]:
        """The static lookup tables that pipelines use."""
        return [
            FixedTable(f"{KEY}/{name}/tables/{number}", table)
            for name, pipeline in self._pipelines.items()
            for number, table in enumerate(pipeline.tables)
        ]

    @property
    def contents(self) -> list[str]:
        """Names of the contents, for the record of a checkpoint."""
        positions = {pipeline.facts.position for pipeline in self._pipelines.values()}
        saved = positions & {InputPosition.EXACT, InputPosition.POSITION}
        counted = positions & {InputPosition.COUNT}
        return ["input position"] * bool(saved) + ["number of elements read"] * bool(counted)

    @property
    def iterators(self) -> dict[str, tf.data.Iterator]:
        """All iterators, by the names of their pipelines."""
        return {name: pipeline.iterator for name, pipeline in self._pipelines.items()}

    @property
    def objects(self) -> dict[str, Any]:
        """The iterators that can be saved, as a `tf.train.Checkpoint` takes them."""
        return self._tracked(
            {
                name: pipeline.iterator
                for name, pipeline in self._pipelines.items()
                if pipeline.saves_iterator
            }
        )

    @property
    def elements(self) -> dict[str, int]:
        """The number of elements that each pipeline read, by name."""
        return {
            name: pipeline.elements
            for name, pipeline in self._pipelines.items()
            if pipeline.elements is not None
        }

    def add_tracked(self, root: tf.train.Checkpoint) -> None:
        """Finds out what can be saved of the iterators among the script's own objects.

        Args:
            root: Tracks the objects, and saves their iterators itself.

        Raises:
            UsageError: The position of an iterator cannot be saved, so no save would succeed.
        """
        for path, thing in live_objects(root):
            if not isinstance(thing, tf.data.Iterator):
                continue
            facts = probe(thing).facts(path)
            if facts.position is InputPosition.COUNT:
                raise UsageError(
                    f"The position of the iterator {path!r} cannot be saved, because it uses "
                    f"{' and '.join(facts.causes)}. {' '.join(facts.remedies)} Or pass its dataset "
                    "to TrainingRun as `dataset`, which saves what is possible."
                )
            self._others.append(facts)

    def degrade(self) -> bool:
        """Saves less of the pipelines whose iterators can no longer be saved.

        Returns:
            Whether there are any, so that another attempt can succeed.
        """
        degraded = [pipeline.degrade() for pipeline in self._pipelines.values()]
        return any(degraded)

    def restore(self, prefix: Path, elements: Mapping[str, int]) -> RestoredInputs:
        """Restores the pipelines in place, each as far as it was saved.

        Args:
            prefix: Prefix of the worker's checkpoint.
            elements: Numbers of elements read, from beside it.
        """
        saved = self._saved_iterators(prefix)
        restored = RestoredInputs()
        for name, pipeline in self._pipelines.items():
            read = elements.get(name)
            if name not in saved or not pipeline.saves_iterator:
                restored.starts_over |= read is None or not pipeline.facts.skips
                restored.done.append(pipeline.start_over(read, self.report))
            elif problem := self._restore_iterator(prefix, name):
                restored.unfit.append(name)
                restored.starts_over = True
                over = pipeline.start_over(read, self.report)
                restored.done.append(f"{over}, because {problem}")
            else:
                pipeline.elements = read
                if pipeline.facts.position is not InputPosition.EXACT:
                    restored.done.append(pipeline.facts.restored)
        restored.done += [other.restored for other in self._others if other.reason]
        return restored

    def start_over(self, names: Iterable[str], elements: Mapping[str, int]) -> None:
        """Starts pipelines over, because their positions did not fit on another worker.

        Args:
            names: Names of the pipelines.
            elements: Numbers of elements read.
        """
        for name in names:
            self._pipelines[name].start_over(elements.get(name), self.report)

    def _restore_iterator(self, prefix: Path, name: str) -> str:
        """Restores the position of a pipeline; returns why it does not fit, as a clause."""
        pipeline = self._pipelines[name]
        pipeline.elements = None
        if lost := pipeline.incomplete_cache:
            return f"the files of cache({lost!r}) are not complete"
        recreate_iterator(pipeline.iterator)
        checkpoint = tf.train.Checkpoint(**self._tracked({name: pipeline.iterator}))
        try:
            with opened_checkpoint(prefix) as opened:
                status = checkpoint.read(str(opened)).assert_existing_objects_matched()
            # The rest is of the worker's other objects.
            status.expect_partial()
        except POSITION_ERRORS:
            return "the dataset is not the one whose position was saved"
        return ""

    def _saved_iterators(self, prefix: Path) -> set[str]:
        """Returns the names of the pipelines whose iterator is in a checkpoint."""
        nodes = read_object_graph(prefix)
        number = nodes[0].children.get(KEY)
        if number is None:
            return set()
        if self._named:
            return set(nodes[number].children)
        return set(self._pipelines) if nodes[number].attributes else set()

    def _tracked(self, iterators: Mapping[str, Any]) -> dict[str, Any]:
        if not iterators:
            return {}
        return {KEY: dict(iterators) if self._named else next(iter(iterators.values()))}
