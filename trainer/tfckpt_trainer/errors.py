"""The errors a person can meet: each message says what, what was expected, and what to do."""

from __future__ import annotations

import os
from enum import IntEnum


class ExitCode(IntEnum):
    """What every command's exit status means; scripts may rely on it."""

    DONE = 0
    PROBLEM = 1
    USAGE = 2
    NO_TRAINER = 3
    REFUSED = 4


class TfckptError(Exception):
    """Base of all errors that are reported as one message and never as a traceback."""

    exit_code = ExitCode.PROBLEM


class UsageError(TfckptError):
    """What was asked for makes no sense: a missing directory, an impossible option."""

    exit_code = ExitCode.USAGE


class UnknownCheckpointError(UsageError):
    """No checkpoint has this name or step; commands add whether it is in the trash.

    Attributes:
        text: The name or the step.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class NoTrainerError(TfckptError):
    """The action needs a live trainer, and none answers."""

    exit_code = ExitCode.NO_TRAINER


class RefusedError(TfckptError):
    """The action was understood and not carried out, because it would lose something."""

    exit_code = ExitCode.REFUSED


class DamagedFileError(TfckptError):
    """A file of the run directory is not what the contract says it is."""


class BundleError(TfckptError):
    """A TensorFlow checkpoint file is damaged: which file, at which offset, what was found.

    Attributes:
        file: Name of the file, without its directory.
        offset: Offset in bytes at which the damage was met, or None where it has no place.
    """

    def __init__(self, file: str, offset: int | None, problem: str) -> None:
        place = f"{file} at byte {offset}" if offset is not None else file
        super().__init__(f"{place}: {problem}")
        self.file = file
        self.offset = offset
        self.problem = problem


class LaunchError(TfckptError):
    """Workers could not be started, or a run could not be taken over."""


def in_words(error: Exception) -> str:
    """Returns the message of an error; of one of the system what it says of which file."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    where = f"{os.fsdecode(error.filename)}: " if _is_path(error.filename) else ""
    return f"{where}{error.strerror}"


def _is_path(name: object) -> bool:
    return isinstance(name, str | bytes | os.PathLike)
