"""Exports a checkpoint: finds the script and the target, and writes the entry of the event log."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.launch.export import Exported, Script, export
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.full_disk import DiskFullError, is_full
from tfckpt_trainer.rundir.paths import EXPORTS, RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.export import ExportFormat
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.rundir.storage.files import make_directory
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.rundir.storage.owners import user_name
from tfckpt_trainer.words.advice import Advice, only_command
from tfckpt_tui.services.control.request import FrontEnd, log_event


def script_of(run: RunDirectory, command: tuple[str, ...] = ()) -> Script:
    """Returns how the script of a run is started.

    Args:
        run: The run directory.
        command: The command that the user gave; by default the one of the launch.

    Raises:
        NotTrustedError: Another user could have written the command of the launch.
        UsageError: No command is known, or its program does not exist.
    """
    options = None if command else _launch_of(run)
    words = command or (options.command if options else ())
    if not words:
        raise UsageError(
            f"{run.root} was not launched by tfckpt-tui, so its training command is unknown.",
            _give_it(run),
        )
    # The user's command runs in the current directory, a launch's in its own.
    directory = Path(options.working_directory) if options is not None else Path.cwd()
    if shutil.which(words[0]) is None and not (directory / words[0]).is_file():
        raise UsageError(
            f"{words[0]!r} is not a program that can be found. Check the command after `--`."
        )
    environment = dict(options.environment) if options is not None else {}
    return Script(words, directory, environment)


def _launch_of(run: RunDirectory) -> LaunchOptions | None:
    try:
        return load_if_exists(run.launch_file, LaunchOptions)
    except PermissionError as error:
        # It stays private: its environment may hold secrets, and others' commands are not run.
        place = os.fsdecode(error.filename)
        raise UsageError(
            f"{place} holds the training command. Only its owner, {_owner_name(place)}, can read "
            "it.",
            _give_it(run),
        ) from error


def _owner_name(path: str) -> str:
    try:
        return user_name(os.stat(path).st_uid)
    except OSError:
        return "another user"


def _give_it(run: RunDirectory) -> Advice:
    return only_command("Give it: ", "export", run.root, "--", "COMMAND")


def describe_script(script: Script) -> str:
    """Describes what an export runs: the command, its directory and its environment variables."""
    told = f"Runs {shlex.join(script.command)} in {script.working_directory}"
    settings = ", ".join(f"{name}={value}" for name, value in script.environment.items())
    return f"{told}, with {settings}." if settings else f"{told}."


def default_target(run: RunDirectory, checkpoint: str, form: ExportFormat) -> Path:
    """Returns the default target of an export, and creates its directory.

    Raises:
        RefusedError: The directory is a symbolic link, which others may have made.
    """
    directory = run.root / EXPORTS
    if directory.is_symlink():
        raise RefusedError(
            f"{directory} is a symbolic link; expected a directory. Remove the "
            f"link: `rm {shlex.quote(str(directory))}`.",
            Advice.of("Or choose another path with --to.", ""),
        )
    make_directory(directory)
    return directory / f"{checkpoint}{form.suffix}"


def target_for(path: Path, form: ExportFormat) -> Path:
    """Returns the absolute path of a target that the user named.

    Raises:
        UsageError: It has not the suffix that Keras requires, or is a URL.
    """
    refuse_url(path, "the target of an export")
    target = expand_user(path).absolute()
    if form.suffix and not target.name.endswith(form.suffix):
        raise UsageError(f"{path} must end in {form.suffix} for the format {form.value}.")
    return target


def export_checkpoint(
    run: RunDirectory,
    checkpoint: str,
    form: ExportFormat,
    script: Script,
    *,
    target: Path | None = None,
    through: FrontEnd,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Exports one checkpoint of a run, and writes an event.

    Args:
        run: The run directory.
        checkpoint: Its name.
        form: The format.
        script: How the script is started.
        target: The target path; by default within the run directory.
        through: The front end that asks, for the event log.
        on_progress: Called with a description of each phase.

    Raises:
        UsageError: The directory of the target cannot be written.
        DiskFullError: The disk of the target or of the run directory is full.
        TfckptError: See `tfckpt_trainer.launch.export.export`.
    """
    place = target_for(target, form) if target else default_target(run, checkpoint, form)
    if place.parent.is_dir() and not os.access(place.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"{place.parent} cannot be written.",
            Advice.of("Choose another path with --to.", "Choose another path."),
        )
    try:
        done = export(run, script, checkpoint, form, place, on_progress=on_progress)
    except OSError as error:
        if not is_full(error):
            raise
        raise DiskFullError(
            f"{place.parent}: {os.strerror(error.errno or errno.ENOSPC)}. Nothing was exported.",
            Advice.of(
                "Free disk space there, or choose another path with --to.",
                "Free disk space there, or choose another path.",
            ),
        ) from error
    warning = log_event(
        run,
        EventKind.EXPORT,
        describe(done),
        through=through,
        step=done.step,
        checkpoint=checkpoint,
        details={"path": str(done.path), "format": form.value, "bytes": done.size},
    )
    if warning:
        on_progress(warning)
    return done


def describe(done: Exported) -> str:
    """Describes an export and how its outputs were checked."""
    same = "exactly" if done.difference == 0 else f"within {done.difference:.1e}"
    return (
        f"{done.checkpoint} is exported to {done.path}: loaded in another process, it answers as "
        f"the model does, {same}, on {done.examples}."
    )
