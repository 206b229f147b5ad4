"""Errors that are reported to users: what happened, what was expected, and what to do next."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from tfckpt_trainer.machine.permissions import access_advice, advice_about, find_closed, is_path
from tfckpt_trainer.words.advice import Advice, KeyOf, only_command


class ExitCode(IntEnum):
    """The exit codes of all commands and of training scripts; scripts may rely on them."""

    DONE = 0
    PROBLEM = 1
    USAGE = 2
    NO_TRAINER = 3
    REFUSED = 4
    # EX_TEMPFAIL: only a worker uses it, and only its supervisor sees it.
    RESTART_WORKERS = 75
    # As shells count a signal: 128 + SIGINT, 128 + SIGTERM. Schedulers requeue the second.
    INTERRUPTED = 130
    PREEMPTED = 143

    @property
    def meaning(self) -> str:
        """What it says, as one line of the reference."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.PROBLEM: "a problem was found, or the action failed",
    ExitCode.USAGE: "usage error: no such directory, step or option",
    ExitCode.NO_TRAINER: "no trainer answers",
    ExitCode.REFUSED: "refused: something would be lost, or the action was not confirmed",
    ExitCode.RESTART_WORKERS: "only from a worker: another worker was lost, restart all workers",
    ExitCode.INTERRUPTED: "interrupted with ctrl+c",
    ExitCode.PREEMPTED: "preempted: the run saved a checkpoint after SIGTERM",
}


class TfckptError(Exception):
    """Base class of errors that are reported as a message, without a traceback.

    Attributes:
        found: What happened, and what was expected.
        advice: What to do next; None if `found` says it, or nothing can be done.
    """

    exit_code = ExitCode.PROBLEM

    def __init__(self, found: str = "", advice: Advice | None = None) -> None:
        super().__init__(f"{found} {advice}" if advice is not None else found)
        self.found = found
        self.advice = advice


class UsageError(TfckptError):
    """The request is invalid: for example, a missing directory or an unknown option."""

    exit_code = ExitCode.USAGE


class UnknownCheckpointError(UsageError):
    """No checkpoint has this name or step; commands add whether it is in the trash.

    Attributes:
        text: The name or the step.
    """

    def __init__(self, found: str, text: str, advice: Advice | None = None) -> None:
        super().__init__(found, advice)
        self.text = text


class NoTrainerError(TfckptError):
    """The action needs a live trainer, and none responds."""

    exit_code = ExitCode.NO_TRAINER


class NothingRunsError(NoTrainerError):
    """No trainer responds, no process of the run lives, and no batch job waits."""


class RefusedError(TfckptError):
    """The request is valid, but carrying it out is not safe."""

    exit_code = ExitCode.REFUSED


class NotTrustedError(RefusedError):
    """Another user could have written a file whose content would be executed or believed."""


class NotWritableError(TfckptError):
    """A run directory cannot be written to, and nothing was changed."""

    def __init__(self, root: Path, error: OSError) -> None:
        advice, place = None, root
        if error.errno == errno.EROFS:
            copy = "Mount it writable, or work on a copy: "
            advice = only_command(copy, "copy", root, "CKPT", "DIRECTORY")
        elif isinstance(error, PermissionError):
            with suppress(OSError):
                place = find_closed(error) or root
                advice = access_advice(place)
        reason = error.strerror or error
        super().__init__(f"{place} cannot be written to ({reason}). Nothing was changed.", advice)


class DamagedFileError(TfckptError):
    """A file in the run directory is damaged or not of the expected kind."""


class NewerFileError(DamagedFileError):
    """A newer release wrote a file in the run directory; this one cannot read all of it."""


class BundleError(TfckptError):
    """A TensorFlow checkpoint file is damaged.

    Attributes:
        file: Name of the file, without its directory.
        offset: Position of the damage in bytes; None if it has none.
        problem: Description of the damage.
    """

    def __init__(self, file: str, offset: int | None, problem: str) -> None:
        place = f"{file} at byte {offset}" if offset is not None else file
        super().__init__(f"{place}: {problem}")
        self.file = file
        self.offset = offset
        self.problem = problem


class UnsupportedBundleError(BundleError):
    """A TensorFlow checkpoint file is sound, in a form that only other programs read."""


class MissingExtensionError(TfckptError):
    """A package is installed without its compiled part: nothing can be said about any file."""


class LaunchError(TfckptError):
    """The supervisor or the workers could not be started or stopped."""


class TornRestoreError(Exception):
    """A restore failed halfway, so the states of the workers differ: restart all of them."""


def describe_error(error: Exception, key_of: KeyOf | None = None) -> str:
    """Returns the message of an error. For an `OSError`, the file and the reason.

    If permissions of a file of a run are the reason, its owner and the command that changes them
    follow. The last period is left to the caller.

    Args:
        error: The error.
        key_of: The keys of the app, for a message in the app; by default its advice names
            commands.
    """
    if key_of is not None and isinstance(error, TfckptError) and error.advice is not None:
        return f"{error.found} {error.advice.in_app(key_of)}".rstrip()
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    where = f"{os.fsdecode(error.filename)}: " if is_path(error.filename) else ""
    return f"{where}{reason_of(error)}"


def reason_of(error: OSError) -> str:
    """Returns the reason of an error without its file, and who may open that; without a period."""
    advice = advice_about(error)
    return f"{error.strerror}" + (f". {advice}".rstrip(".") if advice is not None else "")
