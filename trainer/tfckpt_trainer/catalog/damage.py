"""Damaged notes of a run: what is wrong with them, and what follows for a start."""

from __future__ import annotations

from collections.abc import Iterator

from tfckpt_trainer.bundle.structure import Finding
from tfckpt_trainer.catalog.scan.history import History, committed_names, read_history
from tfckpt_trainer.rundir.documents import copy_of, describe_copy_damage, describe_damage
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import Head

_NAMED = 5
"""Damaged records that one sentence names."""


def damage_at_start(run: RunDirectory) -> tuple[str, ...]:
    """Returns which notes of a run are damaged with their copies, and what a start does then.

    Returns:
        Sentences for the journal; none where every note can be read.
    """
    history = read_history(run)
    sentences = []
    if history.head_is_damaged:
        sentences.append(f"{_pair(run, 'head.json')} are damaged: {_without_head(run, history)}")
    committed = committed_names(run, history)
    damaged = sorted(history.damaged & committed)
    if damaged:
        files = ", ".join(_pair(run, f"records/{name}.json") for name in damaged[:_NAMED])
        more = f" and {len(damaged) - _NAMED:,} more records" if len(damaged) > _NAMED else ""
        sentences.append(
            f"{files}{more} are damaged: a checkpoint is restored without its record. "
            "Input position and random states start anew then."
        )
        if history.latest not in committed:
            sentences.append(
                "TensorFlow's state file names no checkpoint that is there: a start goes on from "
                "the newest save with a sound record."
            )
    return tuple(sentences)


def head_findings(run: RunDirectory) -> Iterator[Finding]:
    """Checks the note of the last restore and its copy; both are warnings."""
    path = run.head_file
    try:
        damage = describe_damage(path, Head)
    except (FileNotFoundError, NotADirectoryError):
        return
    of_copy = describe_copy_damage(path, Head)
    history = read_history(run) if damage else None
    if history is not None and history.head_is_damaged:
        what = f"Its copy is of no use either: {_without_head(run, history)}"
        yield Finding("warning", "head", path.name, None, f"{damage} {what}")
    elif damage:
        yield Finding(
            "warning", "head", path.name, None, f"{damage} Its copy {copy_of(path).name} is used."
        )
    if of_copy:
        yield Finding("warning", "head", copy_of(path).name, None, of_copy)


def _without_head(run: RunDirectory, history: History) -> str:
    if history.latest in committed_names(run, history):
        return (
            "where training had gone back to is taken from TensorFlow's state file, which names "
            f"{history.latest}."
        )
    return (
        "a start goes on from the newest save, because TensorFlow's state file names no "
        "checkpoint that is there."
    )


def _pair(run: RunDirectory, name: str) -> str:
    return f"{run.control.name}/{name} and its copy"
