"""The command line `tfckpt-tui`: opens the app, and has every action as a command."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfckpt_trainer import __version__
from tfckpt_trainer.errors import (
    ExitCode,
    RefusedError,
    TfckptError,
    UnknownCheckpointError,
    UsageError,
    describe_error,
)
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.rundir.storage.parent_directory import without_links
from tfckpt_tui.cli.completion import is_asked_for
from tfckpt_tui.cli.ending_signals import EndingSignals
from tfckpt_tui.cli.network_paths import network_paths
from tfckpt_tui.cli.output import (
    app_unavailable_reason,
    discard_output,
    prepare_streams,
    print_error,
    print_json,
)
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.base import Error, ErrorReport, Report
from tfckpt_tui.services.runs.open_run import open_run
from tfckpt_tui.settings.packages import COMMANDS, brought_by_packages, load_brought, own_tools

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from click.shell_completion import CompletionItem

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


class NamedPath(click.Path):
    """A path that must not be empty: `Path("")` is the current directory."""

    def __init__(self, *, readable: bool = True) -> None:
        super().__init__(path_type=Path, readable=readable)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path, as the user wrote it."""
        if value == "" and not (ctx and ctx.resilient_parsing):
            raise UsageError(
                f"{_word_for(param)} is empty. Name a path; if a script takes it from a variable, "
                "make sure that the variable is set."
            )
        return super().convert(value, param, ctx)


class FiniteRange(click.FloatRange):
    """A finite number within bounds: NaN is within all of them, infinity beyond no minimum."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class DirectoryPath(NamedPath):
    """The path of a directory; URLs are refused."""

    def __init__(self) -> None:
        # Not `readable`: `open_run` has better error messages.
        super().__init__(readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path, as the user wrote it."""
        if ctx is None or not ctx.resilient_parsing:
            refuse_url(value)
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns run directories that begin so."""
        del ctx, param
        return _complete_directory(incomplete)


def _complete_directory(typed: str) -> list[CompletionItem]:
    # Imported here, as what else answers a shell: commands complete nothing.
    from tfckpt_tui.cli.completion.run_directories import complete_directory

    return complete_directory(typed)


def _word_for(param: click.Parameter | None) -> str:
    """Returns how the help names a parameter; for an option of several values, its first value."""
    if isinstance(param, click.Option) and param.nargs == 1:
        return max(param.opts, key=len)
    return param.metavar.split()[0].strip("[]") if param and param.metavar else "The path"


_RUN = DirectoryPath()
RunArgument = click.argument("directory", type=_RUN, metavar="RUN")
RunOrProcessArgument = click.argument("directory", required=False, type=_RUN, metavar="[RUN]")
DirectoryArgument = click.argument("directory", required=False, type=_RUN, metavar="[DIRECTORY]")


LogdirOption = click.option(
    "--logdir",
    type=_RUN,
    metavar="DIRECTORY",
    help="Where TensorBoard event files are; by default, in RUN and below.",
)


PidOption = click.option(
    "--pid",
    type=click.IntRange(min=1),
    metavar="PID",
    help="A process of this host that trains without tfckpt_trainer; RUN can be left out then.",
)


class JsonOption(click.Option):
    """The option `--json`, with the documents that it prints."""

    def __init__(self, names: Sequence[str], *, reports: tuple[type[Report], ...]) -> None:
        super().__init__(names, is_flag=True, help="Print JSON to standard output.")
        self.reports = reports


def prints(*reports: type[Report]) -> Callable[[_CommandT], _CommandT]:
    """Decorates a command with `--json`: one of these documents is printed, or an error."""
    return click.option("--json", "as_json", cls=JsonOption, reports=reports)


class Commands(click.Group):
    """Imports each command when it is used; a directory instead of a command opens the app.

    The tools of this package and other installed packages bring further commands, but none in
    place of one of these.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands, in the order of the help."""
        del ctx
        return list({**_COMMAND_MODULES, **brought_by_packages(COMMANDS)})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands group by group, each with its whole first sentence."""
        for heading, commands in self.by_heading(self.list_commands(ctx)).items():
            with formatter.section(heading):
                rows = [
                    (name, one.get_short_help_str(_LONGEST_SENTENCE))
                    for name, one in commands.items()
                ]
                formatter.write_dl(rows)

    def by_heading(self, names: Iterable[str]) -> dict[str, dict[str, click.Command]]:
        """Returns commands by their names, and these by the heading in the help."""
        found: dict[str, dict[str, click.Command]] = {heading: {} for heading in _GROUPS}
        for name in names:
            command = _import_command(name)
            heading = _HEADINGS.get(name) or str(getattr(command, "heading", _OTHERS))
            if command is not None:
                found.setdefault(heading, {})[name] = command
        return {heading: commands for heading, commands in found.items() if commands}

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Imports one command."""
        del ctx
        return _import_command(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Handles `tfckpt-tui RUN` as `tfckpt-tui attach RUN`."""
        if args and not args[0].startswith("-") and not _is_command(args[0]):
            if not _looks_like_directory(args[0]):
                raise click.UsageError(_unknown_word(args[0]), ctx)
            args = ["attach", *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the commands that begin so; directories, if it is a path."""
        is_path = os.sep in incomplete or incomplete.startswith(("~", "."))
        return (
            _complete_directory(incomplete) if is_path else super().shell_complete(ctx, incomplete)
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; it succeeds if the reader of its output closes the pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_output()
            return int(ExitCode.DONE)


def own_commands() -> list[str]:
    """Returns the names of the commands of this package."""
    return [*_COMMAND_MODULES, *own_tools()]


class ToolCommand(click.Command):
    """A command that a package brings, and that the help lists under a heading of its choice.

    Attributes:
        heading: The heading: one of the help, or a new one.
    """

    def __init__(self, *arguments: Any, heading: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.heading = heading


def _import_command(name: str) -> click.Command | None:
    if name not in _COMMAND_MODULES:
        entry = _brought(name)
        return _command_of(entry) if entry is not None else None
    from importlib import import_module

    module = import_module(f"tfckpt_tui.cli.{_COMMAND_MODULES[name]}")
    command: click.Command = getattr(module, name.replace("-", "_"))
    return command


def _brought(name: str) -> EntryPoint | None:
    """Returns where a command is that is no module of this package."""
    return own_tools().get(name) or brought_by_packages(COMMANDS).get(name)


def _command_of(entry: EntryPoint) -> click.Command:
    """Returns the command of another package; one that raises the error if it has none."""
    try:
        command = load_brought(entry, click.Command)
    except TfckptError as error:
        problem = error
    else:
        command.name = entry.name
        return command

    def refuse(words: tuple[str, ...]) -> None:
        del words
        raise problem

    anything = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
    return click.Command(
        entry.name,
        callback=refuse,
        params=[anything],
        short_help=clean(str(problem)),
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )


_GROUPS = {
    "Start and open runs": {
        "demo": "run.launch",
        "launch": "run.launch",
        "attach": "run.launch",
        "browse": "run.launch",
        "runs": "run.runs",
    },
    "Look at a run": {
        "status": "run.status",
        "logs": "run.logs",
        "stacks": "run.stacks",
        "journal": "run.status",
        "tensorboard": "run.tensorboard",
    },
    "Look at checkpoints": {
        "ls": "run.ls",
        "inspect": "checkpoints.inspect",
        "compare": "checkpoints.compare",
        "verify": "checkpoints.verify",
        "bisect": "checkpoints.verify",
    },
    "Act": {
        "save": "run.control",
        "restore": "run.restore",
        "pause": "run.control",
        "resume": "run.control",
        "stop": "run.stop",
        "prune": "checkpoints.prune",
        "undo": "checkpoints.trash",
        "trash": "checkpoints.trash",
        "pin": "checkpoints.trash",
        "unpin": "checkpoints.trash",
        "export": "checkpoints.export",
        "act": "checkpoints.own_actions",
    },
    "Change and guard training": {
        "get": "run.hyperparameters",
        "set": "run.hyperparameters",
        "guards": "run.guards",
        "alert": "run.alerts",
        "profile": "run.profile",
    },
    "Work with tensors": {
        "track": "checkpoints.track",
    },
    "Tools": {
        "check": "check",
        "config": "config",
        "schema": "schema",
        "completion": "config",
    },
}
"""The module of each command, by the heading in the help."""

_COMMAND_MODULES = {name: module for group in _GROUPS.values() for name, module in group.items()}

_HEADINGS = {name: heading for heading, group in _GROUPS.items() for name in group}

_OTHERS = "Other packages"
"""The heading of a command that chooses none."""

_LONGEST_SENTENCE = 200
"""Characters of the help of a command; more are cut."""

_TIMEOUT_SECONDS = 10.0
"""How long a directory may take to answer by default."""

_COMPLETION_SECONDS = 2.0
"""How long a directory on a network disk may take to answer before nothing is completed."""


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tfckpt-tui")
@click.option(
    "--timeout",
    type=FiniteRange(min=0.1),
    default=_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long a network disk or another host may take to answer.",
)
def cli(timeout: float) -> None:
    """Watch and steer distributed TensorFlow training from the terminal.

    `tfckpt-tui RUN` opens a checkpoint directory in the app. `tfckpt-tui` alone shows recently
    opened runs. Every action of the app is also a command. Exit codes: 0 done, 1 a problem was
    found, 2 usage, 3 no trainer answers, 4 refused.
    """
    # `_timeout` reads it earlier, in the process that waits.
    del timeout


def main() -> None:
    """Runs the command line and exits with its exit code."""
    prepare_streams()
    code = _complete() if is_asked_for() else _run_guarded(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    # Otherwise Python looks for garbage in all modules before it exits.
    gc.freeze()
    sys.exit(code)


def _ending_signals(arguments: list[str]) -> set[int]:
    """Returns the signals that end a command by an exception; the app ends by its own ways."""
    opens_app = _COMMAND_MODULES.get(_command_in(arguments)) == "run.launch"
    return set() if opens_app else {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def _complete() -> int:
    """Answers a shell; says nothing if a disk does not answer, or if something is wrong."""
    from tfckpt_tui.cli.completion.shells import register, words_of_shell

    register()

    def answer() -> int:
        try:
            cli.main([], prog_name="tfckpt-tui")
        except SystemExit as end:
            return int(end.code or 0)

    with suppress(TfckptError, OSError):
        paths = guarded_paths(words_of_shell())
        if not paths:
            return answer()
        from tfckpt_tui.cli.answer_guard import run_guarded

        return run_guarded(answer, paths, _COMPLETION_SECONDS)
    return int(ExitCode.PROBLEM)


def _run_guarded(arguments: list[str]) -> int:
    """Runs one command line; on network disks in a way that ends if they do not answer."""
    signals = EndingSignals()
    signals.raise_on(_ending_signals(arguments))

    def act() -> int:
        return signals.status_of(lambda: run(arguments))

    own = arguments[: arguments.index("--") if "--" in arguments else None]
    paths = guarded_paths(own)
    if not paths and not lists_runs(own):
        return act()
    # Imported here, as above: most directories are on a disk of this machine.
    from tfckpt_tui.cli.answer_guard import NoAnswerError, run_guarded

    try:
        return run_guarded(act, paths, _timeout(own))
    except NoAnswerError as error:
        return _report(error, "--json" in own)


def guarded_paths(arguments: list[str]) -> list[Path]:
    """Returns the paths on network disks that have to answer while a command runs.

    Args:
        arguments: The command line, without the command of a launch.
    """
    if "--foreground" in arguments:
        # It is the job of a scheduler: training goes on while the disk hangs.
        return []
    command = _command_in(arguments)
    others: list[Path] = []
    with suppress(OSError):
        others.append(Path.cwd())
    return network_paths([word for word in arguments if word != command], others)


def lists_runs(arguments: list[str]) -> bool:
    """Whether a command line lists runs, of which some may be on a disk that hangs.

    They need not answer, but a process that waits for one cannot exit.
    """
    command = _command_in(arguments)
    if command == "runs" or (command == "browse" and len(arguments) > 1):
        return True
    if command != "browse":
        return False
    from tfckpt_tui.services.runs.recent_runs import remembered_runs

    return bool(network_paths([], remembered_runs()))


def _command_in(arguments: list[str]) -> str:
    """Returns the command of a command line; `browse` for one without, which opens the app."""
    for place, word in enumerate(arguments):
        is_value = place > 0 and arguments[place - 1] == "--timeout"
        if word.startswith("-") or is_value:
            continue
        return word if _is_command(word) else "browse"
    return "browse"


def _is_command(word: str) -> bool:
    """Whether a word is a command, where it can be one."""
    if word in _COMMAND_MODULES or os.sep in word:
        return word in _COMMAND_MODULES
    return _brought(word) is not None


def _timeout(arguments: list[str]) -> float:
    """Returns the value of the global option `--timeout`, which click parses in the child only."""
    for place, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name == "--timeout":
            with suppress(ValueError, IndexError):
                return float(value or arguments[place + 1])
        if not word.startswith("-"):
            break
    return _TIMEOUT_SECONDS


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; errors are printed as one message."""
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        words = arguments or (["--help"] if app_unavailable_reason() else ["browse"])
        return int(cli.main(words, prog_name="tfckpt-tui", standalone_mode=False) or 0)
    except click.Abort:
        return ExitCode.INTERRUPTED
    except click.UsageError as error:
        return _report(_as_usage(error), as_json)
    except TfckptError as error:
        return _report(error, as_json)
    except OSError as error:
        # Imported here: few commands fail so.
        from tfckpt_trainer.rundir.storage.own_links import LinkOfOthersError

        kind = RefusedError if isinstance(error, LinkOfOthersError) else TfckptError
        return _report(kind(f"{describe_error(error).rstrip('.')}."), as_json)


def named_directory(
    directory: Path | None, logdir: Path | None, pid: int | None
) -> tuple[Path, Path | None]:
    """Returns the directory that a user named, or that in which a process trains, and its logdir.

    Raises:
        click.UsageError: The user named neither.
        TfckptError: See `find_training_directory` and `check_training_directory`.
    """
    if pid is None:
        if directory is None:
            raise click.UsageError("Name a directory, or a process by --pid.")
        return directory, logdir
    # Imported here: few commands name a process.
    from tfckpt_tui.services.runs.training_directory import (
        check_training_directory,
        find_training_directory,
    )

    if directory is not None:
        check_training_directory(directory, pid, time.time())
        return directory, logdir
    found = find_training_directory(pid, time.time())
    return found.root, logdir or found.logdir


def on_open_run(act: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a command that acts on a run: it gets the opened run, not the directory."""

    def opened(
        directory: Path | None,
        logdir: Path | None = None,
        pid: int | None = None,
        **options: Any,
    ) -> Any:
        directory, logdir = named_directory(directory, logdir, pid)
        run = open_run(directory, logdir=logdir, process=pid)
        try:
            with without_links(run.root):
                return act(run, **options)
        except UnknownCheckpointError as error:
            from tfckpt_trainer.catalog.directory.trash import in_trash_error

            raise in_trash_error(run, error.text) or error from None

    opened.__name__ = act.__name__
    opened.__doc__ = act.__doc__
    return opened


def _as_usage(error: click.UsageError) -> UsageError:
    # Click lists the choices of an option on lines of their own.
    message = " ".join(error.format_message().split())
    hint = f" See `{error.ctx.command_path} --help`." if error.ctx else ""
    ends = message.endswith((".", "?", "?)"))
    return UsageError(f"{message}{'' if ends else '.'}{hint}")


def _report(error: TfckptError, as_json: bool) -> int:
    code = ExitCode(error.exit_code)
    if as_json:
        print_json(ErrorReport(error=Error(int(code), code.name.lower(), str(error))))
    print_error(str(error))
    return int(code)


def _unknown_word(word: str) -> str:
    from difflib import get_close_matches

    commands = {**_COMMAND_MODULES, **brought_by_packages(COMMANDS)}
    near = get_close_matches(word, commands, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"{word!r} is neither a command nor a directory.{hint}"


def _looks_like_directory(text: str) -> bool:
    # An empty word is an empty RUN, which `attach` refuses.
    return not text.startswith("-") and (
        os.sep in text or text in {"", ".", ".."} or os.path.exists(text)
    )


if __name__ == "__main__":
    main()
