"""Runs users' own actions, and stores what they find for checkpoints."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.stored_results import store_action_result
from tfckpt_trainer.errors import RefusedError, TfckptError, describe_error
from tfckpt_trainer.machine.priority import lower_priority
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.heartbeats.process_table import find_process
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.results import ActionResult
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json
from tfckpt_trainer.scripts.exit_statuses import exit_words
from tfckpt_tui.formats import units
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn, fill

LONGEST_LINE = 1 << 16
"""Bytes of the last line of standard output that are kept."""

_READ_BYTES = 1 << 16
_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 1.0
"""How long to read what descendants of a command that has ended still print."""

_GRACE_SECONDS = 3.0
"""How long a cancelled command may take to end before it is killed."""


class Captured(msgspec.Struct, frozen=True):
    """How a command ended.

    Attributes:
        exit_code: Its exit status; negative, the number of the signal that ended it.
        last_line: The last line of its standard output that is not empty.
        was_cancelled: Whether it was ended on request.
    """

    exit_code: int
    last_line: bytes
    was_cancelled: bool


def run_captured(
    words: Sequence[str],
    directory: Path,
    on_output: Callable[[bytes], None],
    cancelled: Callable[[], bool],
) -> Captured:
    """Runs a command, without a shell and without input, and waits until it ends.

    Whatever ends the wait, no process of its group is left.

    Args:
        words: The program and its arguments.
        directory: Where it is run.
        on_output: Called with each part of what it prints, on either stream.
        cancelled: Whether to end it.

    Raises:
        TfckptError: It cannot be started.
    """
    try:
        process = subprocess.Popen(
            words,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TfckptError(f"{words[0]} cannot be run in {directory}: {why}.") from error
    lower_priority(group=process.pid)
    with process:
        try:
            tail, was_cancelled = _read(process, on_output, cancelled)
        finally:
            _end_group(process)
    lines = [line for line in tail.splitlines() if line.strip()]
    return Captured(process.returncode, lines[-1] if lines else b"", was_cancelled)


def _read(
    process: subprocess.Popen[bytes],
    on_output: Callable[[bytes], None],
    cancelled: Callable[[], bool],
) -> tuple[bytes, bool]:
    """Returns the end of standard output, and whether the command was cancelled before its end."""
    tail, ended_at = b"", None
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() or not _has_ended(process):
            for key, _ in selector.select(_POLL_SECONDS):
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                on_output(data)
                if key.fileobj is process.stdout:
                    tail = (tail + data)[-LONGEST_LINE:]
            if not selector.get_map():
                time.sleep(_POLL_SECONDS / 10)
            if ended_at is None and _has_ended(process):
                ended_at = time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > _DRAIN_SECONDS:
                break
            if ended_at is None and cancelled():
                return tail, True
    return tail, False


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has exited; it is not waited for, so that the group keeps its number."""
    found = find_process(process.pid)
    return found is None or found.is_zombie


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if not _has_ended(process):
            os.killpg(process.pid, signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_SECONDS
            while not _has_ended(process) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS / 10)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
