"""The launch form: its fields, their defaults, and the launch options they give."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.errors import NotTrustedError, TfckptError, UsageError, describe_error
from tfckpt_trainer.launch.options import LaunchOptions, LaunchRecord
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.documents import load_if_exists, try_read
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.rundir.storage.own_links import resolve_named


class LaunchForm(msgspec.Struct, frozen=True):
    """The fields of the form, as text.

    Attributes:
        first: The options of the previous launch, for all options without a field.
        note: Why the options of the previous launch are not taken; empty if they are.
    """

    directory: str
    command: str = ""
    working_directory: str = ""
    workers: str = "1"
    parameter_servers: str = "0"
    max_restarts: str = "3"
    first: LaunchOptions | None = None
    note: str = ""

    @property
    def asks_slurm(self) -> bool:
        """Whether the launch submits a batch job."""
        return self.first is not None and self.first.slurm is not None

    def options(self) -> LaunchOptions:
        """Returns the options of the launch.

        Raises:
            UsageError: A field is invalid.
        """
        if not self.directory.strip():
            raise UsageError("Name the run directory: a new one, or one with checkpoints.")
        refuse_url(self.directory.strip())
        try:
            command = tuple(shlex.split(self.command))
        except ValueError as error:
            raise UsageError(f"The command cannot be parsed: {error}. Check its quotes.") from error
        if not command:
            raise UsageError("Type the command of each worker, such as: python train.py")
        changes = {
            "run_directory": _resolved(self.directory.strip()),
            "command": command,
            "working_directory": os.path.expanduser(self.working_directory.strip()) or os.getcwd(),
            "workers": _number("workers", self.workers),
            "parameter_servers": _number("parameter servers", self.parameter_servers),
            "max_restarts": _number("restarts", self.max_restarts),
        }
        if self.first is None:
            return msgspec.convert(changes, LaunchOptions)
        options = msgspec.structs.replace(self.first, **changes)
        if len(options.ports) != len(options.tasks):
            options = msgspec.structs.replace(options, ports=())
        return options


def _resolved(directory: str) -> str:
    try:
        return str(resolve_named(os.path.expanduser(directory)))
    except OSError as error:
        raise UsageError(f"{describe_error(error)}.") from error


def last_launch(run: RunDirectory) -> LaunchRecord | None:
    """Returns the options of the last launch, to be shown; None if they cannot be read."""
    return try_read(lambda: load_if_exists(run.launch_file, LaunchRecord))


def form_of(run: RunDirectory) -> LaunchForm:
    """Returns a form with the options of the last launch; an empty one if there was none.

    What another user could have written is not taken: the form would start it.
    """
    note = ""
    try:
        first = load_if_exists(run.launch_file, LaunchOptions)
    except NotTrustedError as error:
        first, note = None, str(error)
    except (TfckptError, OSError):
        first = None
    if first is None:
        return LaunchForm(str(run.root), working_directory=os.getcwd(), note=note)
    return LaunchForm(
        directory=str(run.root),
        command=shlex.join(first.command),
        working_directory=first.working_directory,
        workers=str(first.workers),
        parameter_servers=str(first.parameter_servers),
        max_restarts=str(first.max_restarts),
        first=first,
    )


def form_like(run: RunDirectory | None) -> LaunchForm:
    """Returns a form for a new run beside `run`, with the same options."""
    stamp = time.strftime("run-%Y%m%d-%H%M%S")
    if run is None:
        return LaunchForm(str(Path.cwd() / stamp), working_directory=os.getcwd())
    form, directory = form_of(run), run.root.parent / stamp
    first = form.first
    if first is None:
        return replace(form, directory=str(directory))
    place = Path(first.working_directory)
    command = [_with_directory(word, run.root, directory, place) for word in first.command]
    return replace(form, directory=str(directory), command=shlex.join(command))


def _with_directory(word: str, old: Path, new: Path, place: Path) -> str:
    """Returns a word of a command, with another run directory if it names the old one.

    Args:
        word: The word, such as `runs/first` or `--run-dir=runs/first`.
        old: The old run directory.
        new: The new run directory.
        place: The directory in which the command runs.
    """
    option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
    is_path = value not in {"", ".", ".."} and os.path.realpath(place / value) == str(old)
    return f"{option}{equals}{new}" if is_path else word


def _number(name: str, text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 6):
        raise UsageError(f"The number of {name} is {text.strip()!r}; type digits.")
    return int(digits)


def launch_command(run: RunDirectory) -> str:
    """Returns the command that launches a run as it was launched last, to be pasted.

    If that is unknown, or another user could have written it, the command of the workers is
    `COMMAND`.
    """
    place = run.shell_word
    options = try_read(lambda: load_if_exists(run.launch_file, LaunchOptions))
    if options is None:
        return f"tfckpt-tui launch {place} -- COMMAND"
    words = ["tfckpt-tui", "launch", str(run.root), *_words(options, _LAUNCH_OPTIONS)]
    if options.slurm is not None:
        words = ["tfckpt-tui", "launch", str(run.root), "--slurm"]
        words += _words(options.slurm, _SLURM_OPTIONS) + _words(options, _OPTIONS_ALSO_OF_SLURM)
        words += [f"--sbatch-arg={argument}" for argument in options.slurm.arguments]
    words += [] if options.standby else ["--no-standby"]
    command = shlex.join([*words, "--", *options.command])
    place = options.working_directory
    return command if place == os.getcwd() else f"cd {shlex.quote(place)} && {command}"


_OPTIONS_ALSO_OF_SLURM = {
    "parameter_servers": "--parameter-servers",
    "max_restarts": "--max-restarts",
    "hang_seconds": "--hang-seconds",
    "peer_seconds": "--peer-seconds",
    "start_timeout": "--start-seconds",
    "grace_seconds": "--grace-seconds",
}
_LAUNCH_OPTIONS = {"workers": "--workers", "ports": "--ports", **_OPTIONS_ALSO_OF_SLURM}
_SLURM_OPTIONS = {
    "nodes": "--nodes",
    "tasks_per_node": "--tasks-per-node",
    "gpus_per_node": "--gpus-per-node",
    "time": "--time",
    "partition": "--partition",
    "account": "--account",
    "max_requeues": "--max-requeues",
}
"""Options of `launch` by their fields."""


def _words(options: msgspec.Struct, names: Mapping[str, str]) -> list[str]:
    """Returns the options that differ from their defaults, as words of a command line."""
    words = []
    for field in msgspec.structs.fields(options):
        value = getattr(options, field.name)
        if field.name in names and value != field.default:
            items = value if isinstance(value, tuple) else (value,)
            shown = (f"{item:g}" if isinstance(item, float) else str(item) for item in items)
            words += [names[field.name], ",".join(shown)]
    return words
