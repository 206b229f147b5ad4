"""Find damaged records of a run, and tell what a start does without them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfckpt_trainer.bundle.structure import Finding
from tfckpt_trainer.catalog.directory.history import RunHistory, has_index, read_history
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import copy_of, describe_copy_damage, describe_damage
from tfckpt_trainer.rundir.storage.files import list_directory
from tfckpt_trainer.words.counts import few_of

_NAMED = 5
"""Damaged records that one sentence names at most."""


def damage_at_start(run: RunDirectory) -> tuple[str, ...]:
    """Returns which documents of a run are damaged together with their copies, or were removed.

    Returns:
        Sentences for the event log, each with what a start does instead.
    """
    history = read_history(run)
    sentences = []
    if history.head_is_damaged:
        sentences.append(f"{_pair(run, 'head.json')} are damaged: {_without_head(run, history)}")
    damaged = sorted(name for name in history.damaged if has_index(run, name))
    if damaged:
        files = few_of([_pair(run, f"records/{name}.json") for name in damaged], _NAMED)
        sentences.append(
            f"{files} are damaged. These checkpoints are restored without their records: "
            "input position and random states start over."
        )
        if not has_index(run, history.latest):
            sentences.append(
                "TensorFlow's state file names no existing checkpoint. A start continues from the "
                "newest save with an intact record."
            )
    sentences += [
        f"{name} was passed over: its record was removed. {mend_by_copy(run, name)}".rstrip()
        for name in _removed_records(run)
        if has_index(run, name)
    ]
    return tuple(sentences)


def mend_by_copy(run: RunDirectory, name: str) -> str:
    """Returns how to bring a removed record back from its copy; empty if no intact copy exists."""
    copy = run.record_copy(name)
    if not copy.is_file() or describe_copy_damage(run.record(name), CheckpointRecord):
        return ""
    command = shlex.join(["cp", "-p", str(copy), str(run.record(name))])
    return f"Its copy is intact: to use {name} again, run: {command}"


def _removed_records(run: RunDirectory) -> list[str]:
    """Returns the checkpoints of which only the copy of the record exists."""
    names = {entry.name for entry in list_directory(run.records_directory)}
    records = {name.removesuffix(".json") for name in names}
    copies = sorted(name.removesuffix(".json.copy") for name in names if name.endswith(".copy"))
    return [name for name in copies if name not in records]


def head_findings(run: RunDirectory) -> Iterator[Finding]:
    """Checks the record of the last restore and its copy; findings are warnings."""
    path = run.head_file
    try:
        damage = describe_damage(path, Head)
    except (FileNotFoundError, NotADirectoryError):
        return
    of_copy = describe_copy_damage(path, Head)
    history = read_history(run) if damage else None
    if history is not None and history.head_is_damaged:
        what = f"Its copy is damaged too: {_without_head(run, history)}"
        yield Finding("warning", "head", path.name, None, f"{damage} {what}")
    elif damage:
        yield Finding(
            "warning", "head", path.name, None, f"{damage} Its copy {copy_of(path).name} is used."
        )
    if of_copy:
        yield Finding("warning", "head", copy_of(path).name, None, of_copy)


def _without_head(run: RunDirectory, history: RunHistory) -> str:
    if has_index(run, history.latest):
        return (
            f"a start continues from {history.latest}, the latest checkpoint in TensorFlow's "
            "state file."
        )
    return (
        "a start continues from the newest save, because TensorFlow's state file names no "
        "existing checkpoint."
    )


def _pair(run: RunDirectory, name: str) -> str:
    return f"{run.control.name}/{name} and its copy"
