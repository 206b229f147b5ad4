"""Opens a run directory, or explains why a directory is not one."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.errors import RefusedError, UsageError, describe_error
from tfckpt_trainer.machine.permissions import BY_EFFECTIVE_ID
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.rundir.storage.own_links import resolve_named


def open_run(
    directory: str | Path,
    *,
    may_be_empty: bool = False,
    logdir: str | Path | None = None,
    process: int | None = None,
) -> RunDirectory:
    """Returns the run in `directory`, which may be any directory of TensorFlow checkpoints.

    Args:
        directory: The directory.
        logdir: Where its event files are, if they are elsewhere.
        may_be_empty: Whether an empty directory is accepted, because a run can be launched in it.
        process: The ID of a process of this host that trains there without this library.

    Raises:
        RefusedError: Its `.tfckpt`, or a directory in it, is a symbolic link; or a link of another
            user leads to it; or the process belongs to another user.
        UsageError: It does not exist, cannot be read, or has neither checkpoints nor event files;
            or there is no such process.
    """
    refuse_url(directory)
    if process is not None:
        from tfckpt_tui.services.runs.process_watch import attached_processes

        attached_processes(process, time.time())
    # Resolved here, so that no later move goes through a symbolic link.
    if logdir is not None and not Path(logdir).is_dir():
        raise UsageError(f"{logdir} is not a directory. Name one that has event files.")
    run = RunDirectory(_root(directory), logdir if logdir is None else _root(logdir), process)
    with suppress(OSError), os.scandir(run.root):
        run.refuse_links()
        if run.is_ours:
            return run
    # Imported here: a command that steers a run needs no reader of checkpoints.
    from tfckpt_tui.services.runs.check_directory import check_directory

    check_directory(run, may_be_empty=may_be_empty)
    return run


def directory_of_runs(directory: Path) -> Path:
    """Returns the path without links of a directory that contains runs.

    Raises:
        RefusedError: A link of another user leads to it.
        UsageError: It is no directory.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; name one that contains runs.")
    return _root(directory)


def _root(directory: str | Path) -> Path:
    try:
        return resolve_named(expand_user(directory))
    except OSError as error:
        raise RefusedError(f"{describe_error(error)}.") from error


def require_readable(run: RunDirectory) -> None:
    """Raises an error if a run is closed to this user, who may see that it exists.

    Raises:
        PermissionError: It is; the error names the directory.
    """
    listed = os.R_OK | os.X_OK
    for place, rights in (
        (run.root, listed),
        (run.control, os.X_OK),
        (run.status_directory, listed),
    ):
        if not os.access(place, rights, effective_ids=BY_EFFECTIVE_ID) and place.is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
