"""A full disk: how it is recognized, and what frees space in a run directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.machine.permissions import advice_about
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.advice import Advice, CommandOrKey, command_or_key

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a full disk, and of an exceeded quota."""


class DiskFullError(TfckptError):
    """The disk is full, even without the reserve. The message says what was changed."""


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in FULL


@contextmanager
def replace_advice(advice: Advice) -> Iterator[None]:
    """Replaces the advice of a `DiskFullError` that the block raises."""
    try:
        yield
    except DiskFullError as error:
        raise DiskFullError(error.found, advice) from error


@contextmanager
def explain_disk_errors(run: RunDirectory) -> Iterator[None]:
    """Turns an `OSError` of the block into an error that names the path and what to do.

    Raises:
        TfckptError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise TfckptError(
            f"Training cannot start in {run.root}: {describe_error(error)}.",
            _advice_to_start(run, error),
        ) from error


def _advice_to_start(run: RunDirectory, error: OSError) -> Advice:
    again = "Then start again."
    if is_full(error):
        return advice_to_free_space(run).then(again)
    if error.errno == errno.ELOOP or advice_about(error) is not None:
        # The description of the error has said what to do.
        return Advice.of(again)
    check = Advice.of(
        "Check with `ls -la {run}` that this user can write to it.", run=run.shell_word
    )
    return check.then(again)


def advice_to_free_space(run: RunDirectory, *, has_trash: bool = True) -> Advice:
    """Returns advice on how to free disk space in a run directory.

    It offers to prune checkpoints only if there are any.

    Args:
        run: The run directory.
        has_trash: Whether there may be something in its trash.
    """
    trash, prune = _empty_trash(run), _delete_checkpoints(run)
    if not _may_have_checkpoints(run):
        if not has_trash:
            return Advice.of("Free space elsewhere on this disk.")
        return Advice.of(
            "Empty the trash with {trash}, or free space elsewhere on this disk.", trash=trash
        )
    if not has_trash:
        return Advice.of(
            "Free disk space, or delete checkpoints for good with {prune}.",
            "Free disk space, or prune checkpoints with {prune} and empty the trash.",
            prune=prune,
        )
    return Advice.of(
        "Free space with {trash}, or delete checkpoints for good with {prune}.",
        "Empty the trash with {trash}. To free more, prune checkpoints with {prune} before that.",
        trash=trash,
        prune=prune,
    )


_KEEP_TRASH = "Do not empty the trash: it contains the checkpoints to bring back."


def advice_for_undo(run: RunDirectory) -> Advice:
    """Returns advice on how to free space for an undo."""
    return Advice.of(
        "{keep_trash} Free space elsewhere on this disk, or delete other checkpoints with {prune}. "
        "Then try again with {again}.",
        keep_trash=_KEEP_TRASH,
        prune=_delete_checkpoints(run),
        again=command_or_key("undo", "undo", run.root),
    )


def advice_beside_trainer(run: RunDirectory) -> Advice:
    """Returns advice on how to free space while a trainer runs that takes no commands."""
    return Advice.of(
        "Free space elsewhere on this disk, or empty the trash with {trash}. Then try again. Or "
        "end training without a save with {stop}, and delete checkpoints with {prune}.",
        trash=_empty_trash(run),
        stop=command_or_key("force-stop", "stop", "--force", run.root),
        prune=_delete_checkpoints(run),
    )


def advice_for_undo_beside_trainer(run: RunDirectory) -> Advice:
    """Returns advice on how to free space for an undo while a trainer runs without commands."""
    return Advice.of(
        "{keep_trash} Free space elsewhere on this disk. Then try again with {again}.",
        keep_trash=_KEEP_TRASH,
        again=command_or_key("undo", "undo", run.root),
    )


def _may_have_checkpoints(run: RunDirectory) -> bool:
    try:
        return any(name.endswith(".index") for name in os.listdir(run.root))
    except OSError:
        return True


def _empty_trash(run: RunDirectory) -> CommandOrKey:
    return command_or_key("trash", "trash", run.root, "empty")


def _delete_checkpoints(run: RunDirectory) -> CommandOrKey:
    return command_or_key("prune", "prune", run.root, "CKPT", "--delete")
