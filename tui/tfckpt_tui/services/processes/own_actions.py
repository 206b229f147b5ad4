"""Runs users' own actions, and stores what they find for checkpoints."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.stored_results import store_action_result
from tfckpt_trainer.errors import RefusedError, TfckptError, describe_error
from tfckpt_trainer.exit_statuses import exit_words
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.results import ActionResult
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json
from tfckpt_trainer.user_directories import expand_user
from tfckpt_tui.formats import units
from tfckpt_tui.services.processes.captured import Captured, run_captured
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn, fill


class ActionOutcome(msgspec.Struct, frozen=True):
    """How an action ended.

    Attributes:
        exit_code: Of the command; None if it was not run, negative if a signal ended it.
        seconds: How long it took.
        values: The numbers that were stored.
        problem: Why it failed; empty if it did not.
        was_cancelled: Whether it was ended on request.
    """

    exit_code: int | None = None
    seconds: float = 0.0
    values: dict[str, float] = {}
    problem: str = ""
    was_cancelled: bool = False

    @property
    def words(self) -> str:
        """How it ended, in a few words."""
        if self.problem:
            return self.problem
        found = ", ".join(f"{name} {units.metric(value)}" for name, value in self.values.items())
        return f"{found or 'done'} in {units.duration(self.seconds)}"


def command_of(
    action: ActionSection, run: RunDirectory, checkpoints: Sequence[Checkpoint]
) -> list[str]:
    """Returns the words of the command of an action.

    The command is split into words first, and the placeholders are filled in each word. So no name
    of a file becomes another word, or a part of a script. Paths are absolute.

    Args:
        action: The action.
        run: The run directory.
        checkpoints: The checkpoint that it is for; or all, if it is run once for all.

    Raises:
        RefusedError: A checkpoint has no step, or a name would be taken for an option.
    """
    root = os.path.abspath(run.root)

    def value_of(name: str) -> str:
        if name == "run":
            return root
        checkpoint = checkpoints[0]
        if name == "step" and checkpoint.step is None:
            raise RefusedError(f"The step of {checkpoint.name} is unknown.")
        if name == "path":
            return os.path.join(root, checkpoint.name)
        return str(getattr(checkpoint, name))

    words = []
    for word in action.words:
        if word == "{paths}":
            words += [os.path.join(root, checkpoint.name) for checkpoint in checkpoints]
            continue
        filled = fill(word, value_of)
        if filled.startswith("-") and not word.startswith("-"):
            raise RefusedError(
                f"The command would take {filled!r} for an option. Use {{path}} in it, which is "
                "absolute."
            )
        words.append(filled)
    return words


def run_action(
    run: RunDirectory,
    name: str,
    action: ActionSection,
    checkpoints: Sequence[Checkpoint],
    *,
    on_output: Callable[[bytes], None],
    cancelled: Callable[[], bool] = lambda: False,
    into_run: bool = True,
) -> ActionOutcome:
    """Runs an action, and waits until it ends.

    Args:
        run: The run directory.
        name: The name of the action.
        action: The action.
        checkpoints: The checkpoint that it is for; all of them if it acts on marked ones.
        on_output: Called with each part of what it prints.
        cancelled: Whether to end it.
        into_run: Whether results may be stored in the run directory.
    """
    began = time.monotonic()
    for_one = checkpoints[0] if action.on is ActsOn.CHECKPOINT else None
    try:
        files = _files_of(run, for_one) if for_one is not None else None
        words = command_of(action, run, checkpoints)
        done = run_captured(words, _directory_of(action), on_output, cancelled)
        seconds = time.monotonic() - began
        problem = _problem_of(done)
        if problem or files is None or for_one is None:
            return ActionOutcome(
                done.exit_code, seconds, problem=problem, was_cancelled=done.was_cancelled
            )
        values = read_values(done.last_line, action.columns, for_one)
        result = ActionResult(at=time.time(), values=values)
        store_action_result(run, files, name, result, into_run=into_run)
    except (TfckptError, OSError) as error:
        return ActionOutcome(seconds=time.monotonic() - began, problem=describe_error(error))
    return ActionOutcome(done.exit_code, seconds, values)


def read_values(line: bytes, columns: Iterable[str], checkpoint: Checkpoint) -> dict[str, float]:
    """Returns the numbers that a command found.

    Args:
        line: The last line of its standard output: a JSON object.
        columns: The numbers that it is to have.
        checkpoint: The checkpoint, whose recorded metrics stay.

    Raises:
        TfckptError: A number is missing, or is not finite, or is recorded by training.
    """
    columns = list(columns)
    if not columns:
        return {}
    try:
        given = decode_json(line, dict[str, Any])
    except JsonError:
        given = {}
    recorded = checkpoint.packed.metrics if checkpoint.packed is not None else {}
    values = {}
    for column in columns:
        value = given.get(column)
        if column in recorded:
            raise TfckptError(
                f"{column} is a metric of training. It stays; choose another name for the column."
            )
        try:
            number = float(value) if isinstance(value, int | float) else math.nan
        except OverflowError:
            number = math.inf
        if isinstance(value, bool) or not math.isfinite(number):
            raise TfckptError(
                f"The last line of its standard output has no finite number {column!r}; expected "
                f'JSON such as {{"{column}": 0.5}}.'
            )
        values[column] = number
    return values


def wants(action: str, checkpoint: Checkpoint) -> bool:
    """Whether an action can run for a checkpoint, and has not yet."""
    return checkpoint.restorable and action not in checkpoint.results


def _files_of(run: RunDirectory, checkpoint: Checkpoint) -> CheckpointFiles:
    files = FileScanner(run.root, frozenset({checkpoint.name})).scan().get(checkpoint.name)
    if files is None or files.index is None:
        raise RefusedError(f"{checkpoint.name} is gone.")
    return files


def _directory_of(action: ActionSection) -> Path:
    directory = expand_user(action.directory) if action.directory else Path.cwd()
    if not directory.is_dir():
        raise RefusedError(f"{directory} is no directory; the action is to be run there.")
    return directory


def _problem_of(done: Captured) -> str:
    """Returns why a command failed; empty if it did not."""
    if done.was_cancelled:
        return "cancelled"
    return f"The command {exit_words(done.exit_code)}." if done.exit_code else ""
