"""Exporting: which checkpoint, by which script, to which place."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.launch.export import Exported, Script, export
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.command_queue import requester
from tfckpt_trainer.rundir.documents import load_if_there
from tfckpt_trainer.rundir.journal import write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalEntry, JournalKind
from tfckpt_trainer.rundir.records.export import ExportFormat

DIRECTORY = "exports"
"""Where exports go within the run directory, unless a person says otherwise."""


def script_of(run: RunDirectory, command: tuple[str, ...] = ()) -> Script:
    """Returns how the script of a run is started.

    Args:
        run: The run directory.
        command: As a person gave it; by default as the run was launched.

    Raises:
        UsageError: Neither is known, or its program is not there.
    """
    options = load_if_there(run.launch_file, LaunchOptions)
    words = command or (options.command if options else ())
    if not words:
        raise UsageError(
            f"{run.root} was not started by `tfckpt-tui launch`, so its script is not known; name "
            f"it: tfckpt-tui export {run.root} -- python train.py"
        )
    # A person's own command is for where they are; a launch's for where it was started.
    launched = options is not None and not command
    directory = Path(options.working_directory) if options and launched else Path.cwd()
    if shutil.which(words[0]) is None and not (directory / words[0]).is_file():
        raise UsageError(f"{words[0]!r} is no program that can be found.")
    environment = dict(options.environment) if options and launched else {}
    return Script(words, directory, environment)


def default_target(run: RunDirectory, checkpoint: str, form: ExportFormat) -> Path:
    """Returns where an export goes unless a person says otherwise; makes that directory."""
    directory = run.root / DIRECTORY
    directory.mkdir(exist_ok=True)
    return directory / f"{checkpoint}{form.suffix}"


def target_for(path: Path, form: ExportFormat) -> Path:
    """Returns where a person wants an export, with the ending that Keras insists on.

    Raises:
        UsageError: It ends otherwise.
    """
    target = path.expanduser().absolute()
    if form.suffix and not target.name.endswith(form.suffix):
        raise UsageError(f"{path} must end in {form.suffix} for --format {form.value}.")
    return target


def export_checkpoint(
    run: RunDirectory,
    checkpoint: str,
    form: ExportFormat,
    *,
    target: Path | None = None,
    command: tuple[str, ...] = (),
    through: str,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Exports one checkpoint of a run, and notes it in the journal.

    Args:
        run: The run directory.
        checkpoint: Its name.
        form: As what.
        target: Where to; by default within the run directory.
        command: How the script is started; by default as the run was launched.
        through: Which front end asks, for the journal.
        on_progress: Told in words what goes on.

    Raises:
        TfckptError: As `tfckpt_trainer.launch.export.export` does.
    """
    script = script_of(run, command)
    place = target_for(target, form) if target else default_target(run, checkpoint, form)
    done = export(run, script, checkpoint, form, place, on_progress=on_progress)
    entry = JournalEntry(
        at=time.time(),
        kind=JournalKind.EXPORT,
        message=describe(done),
        step=done.step,
        checkpoint=checkpoint,
        by=requester(through),
        details={"path": str(done.path), "format": form.value, "bytes": done.size},
    )
    write_entry(run, entry)
    return done


def describe(done: Exported) -> str:
    """Says what was exported, and how that is known to be right."""
    same = "exactly" if done.difference == 0 else f"within {done.difference:.1e}"
    return (
        f"{done.checkpoint} is exported to {done.path}: loaded in another process, it answers as "
        f"the model does, {same}, on {done.examples}."
    )
