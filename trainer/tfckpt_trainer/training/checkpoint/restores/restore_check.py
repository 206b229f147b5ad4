"""What one worker finds out before a restore, so that all workers can agree on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf

from tfckpt_trainer.bundle.index import Index, read_index, shard_path
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.structure import UNREADABLE, structure_findings
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.training.checkpoint.state import RandomState
from tfckpt_trainer.training.pipelines.input_state import RestoredInputs
from tfckpt_trainer.training.state.adapted import Adapted, AdaptedContents
from tfckpt_trainer.training.state.adoption import Adoption
from tfckpt_trainer.training.state.comparison import VariableMatch
from tfckpt_trainer.training.state.variables import components, raw_variable
from tfckpt_trainer.training.state.walk import FoundState
from tfckpt_trainer.words.counts import first_lines

SHOWN_PROBLEMS = 8
"""How many problems are shown; a wrong model has hundreds."""


@dataclass
class RestoreCheck:
    """What one worker found before anything was changed.

    Attributes:
        problems: Why it cannot be restored.
        damaged: Whether that is because of damaged files.
        notes: What is not restored, and why that is acceptable, as sentences.
        left_out: What a partial restore leaves out.
        worker_state_fits: Whether the state of this worker can be restored.
    """

    problems: list[str] = field(default_factory=list)
    damaged: bool = False
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    worker_state_fits: bool = False


@dataclass
class Reading:
    """What one worker did after all agreed to restore.

    Attributes:
        failure: What went wrong; empty if nothing did.
        inputs: What was done with the input pipelines.
    """

    failure: str = ""
    inputs: RestoredInputs = field(default_factory=RestoredInputs)


@dataclass
class Prepared:
    """What one worker needs to restore what it checked.

    Attributes:
        record: The record of the checkpoint, if there is one that can be read.
        is_foreign: Whether another program saved its values.
        found: All state of the script.
        index: The index of the shared state, if all else that is read of it was found sound.
        matches: Variables of the shared state, with their tensors.
        values: Their values in main memory, equal to their checksums; None if TensorFlow reads
            the shared state by itself.
        adoption: Where another program saved them; None if this library did.
        is_whole: Whether these variables are all that the shared state holds.
        is_partial: Whether only `matches` of the shared state are restored.
        untracked: Variables that are stored beside the shared state, with their tensors.
        adapted: What was adapted to other data, with the saved values.
        tracking: What takes the values of this worker, if there are any.
        worker_matches: Variables of the worker's state, with their tensors.
        random_state: The saved random state, if the worker's state is restored.
        objects: The random state with the objects of the script to restore.
    """

    record: CheckpointRecord | None = None
    is_foreign: bool = False
    found: FoundState = field(default_factory=FoundState)
    index: Index | None = None
    matches: tuple[VariableMatch, ...] = ()
    values: list[tf.Tensor] | None = None
    adoption: Adoption | None = None
    is_whole: bool = False
    is_partial: bool = False
    untracked: tuple[VariableMatch, ...] = ()
    adapted: tuple[tuple[Adapted, AdaptedContents], ...] = ()
    tracking: tf.train.Checkpoint | None = None
    worker_matches: tuple[VariableMatch, ...] = ()
    random_state: RandomState | None = None
    objects: RandomState | None = None

    @property
    def own(self) -> set[int]:
        """Identities of the variables that take the values of this worker."""
        taken = {id(match.variable) for match in self.worker_matches}
        return {
            id(raw_variable(state.thing))
            for state in self.found
            if state.rule.is_variable and all(id(part) in taken for part in components(state.thing))
        }


def find_damage(prefix: Path, of: str = "") -> list[str]:
    """Verifies the files at `prefix`; returns what is wrong with them.

    Args:
        prefix: The path without `.index`.
        of: The checkpoint that they belong to, unless it is their name.
    """
    name = f"{prefix.name} of {of}" if of else prefix.name
    try:
        findings = verify(prefix).findings
    except (BundleError, FileNotFoundError) as error:
        return [f"{name} is damaged or missing: {error}"]
    return [
        f"{name} {'cannot be used' if finding.kind == UNREADABLE else 'is damaged'}: "
        f"{finding.message}"
        for finding in findings
        if finding.severity == "error"
    ]


def sound_index(prefix: Path) -> Index | None:
    """Returns the index at `prefix`; None if anything but the bytes of its tensors is damaged.

    `find_damage` says what is damaged.
    """
    try:
        index = read_index(prefix)
        for number in range(index.shard_count):
            with Shard(shard_path(prefix, number, index.shard_count)):
                pass
        findings = structure_findings(prefix, index)
    except (BundleError, OSError):
        return None
    return index if all(finding.severity != "error" for finding in findings) else None


def merge_problems(checks: Sequence[RestoreCheck]) -> list[str]:
    """Returns the problems of all workers, each once, with the workers that have it.

    Args:
        checks: What each worker found, by its index.
    """
    workers: dict[str, list[str]] = {}
    for index, check in enumerate(checks):
        for problem in check.problems:
            # Errors are sentences; a problem is a part of one.
            workers.setdefault(problem.rstrip("."), []).append(str(index))
    problems = [
        problem
        if len(of) == len(checks)
        else f"worker{'s' * (len(of) > 1)} {', '.join(of)}: {problem}"
        for problem, of in workers.items()
    ]
    return first_lines(problems, SHOWN_PROBLEMS)
