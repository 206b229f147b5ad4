"""Writes the reference of all commands and keys from their definitions.

`python docs/tools/make_reference.py` writes `docs/reference/commands.md`; a test holds the two together.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from tfckpt_tui.cli import cli
from tfckpt_tui.commands.table import ACTIONS

REFERENCE = Path(__file__).parents[1] / "reference" / "commands.md"

HEAD = """# Commands and keys

Made by `docs/tools/make_reference.py` from the definitions of the commands; do not edit it by hand.

Standard output is data, standard error is words. Every command that can print JSON does so with
`--json`; [json.md](json.md) describes it.

| exit code | what it means |
|---|---|
| 0 | done |
| 1 | a problem was found, or the action failed |
| 2 | what was asked for makes no sense: no such directory, step or option |
| 3 | no trainer answers |
| 4 | refused: it would lose something, or nobody confirmed it |
| 130 | ended with ctrl+c |

`RUN` is a run directory, or any directory of TensorFlow checkpoints. `tfckpt-tui RUN` is short for
`tfckpt-tui attach RUN`; a directory that is called like a command needs a path, as in `./demo`.
"""

NAMED_KEYS = {"asterisk": "*", "question_mark": "?"}


def reference() -> str:
    """Returns the whole reference as Markdown."""
    context = click.Context(cli, info_name="tfckpt-tui")
    parts = [HEAD]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts.append("\n".join(describe(name, command)))
    parts.append("\n".join(keys()))
    return "\n".join(parts)


def describe(name: str, command: click.Command) -> Iterator[str]:
    """Yields the lines on one command."""
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    words = " ".join(argument_words(argument) for argument in arguments)
    yield f"## `tfckpt-tui {name} {words}".rstrip() + "`"
    yield ""
    yield inspect.cleandoc(command.help or "")
    yield ""
    options = [p for p in command.params if isinstance(p, click.Option)]
    if options:
        yield "| option | what it does |"
        yield "|---|---|"
        for option in options:
            yield f"| {option_words(option)} | {option.help or ''}{default_words(option)} |"
        yield ""


def argument_words(argument: click.Argument) -> str:
    """Returns how an argument stands in the command line."""
    if argument.name == "command":
        return "-- COMMAND …"
    if isinstance(argument.type, click.Choice):
        return "|".join(argument.type.choices)
    return argument.metavar or (argument.name or "").upper()


def option_words(option: click.Option) -> str:
    """Returns the spellings of an option, with what it takes."""
    names = sorted(option.opts, key=len, reverse=True)
    if option.is_flag:
        return ", ".join(f"`{name}`" for name in [*names, *option.secondary_opts])
    taken = option.metavar or {"integer": "N", "integer range": "N"}.get(option.type.name, "TEXT")
    if isinstance(option.type, click.Path):
        taken = option.metavar or "DIR"
    return f"`{names[0]} {taken}`".replace("|", "\\|")


def default_words(option: click.Option) -> str:
    """Returns the default of an option where its help shows it."""
    if not option.show_default or option.is_flag:
        return ""
    default = option.default
    return f" Default: {default}." if isinstance(default, str) else f" Default: {default:g}."


def keys() -> Iterator[str]:
    """Yields the table of the app's keys."""
    yield "## Keys of the app"
    yield ""
    yield "| key | action | what it does |"
    yield "|---|---|---|"
    for action in ACTIONS:
        key = NAMED_KEYS.get(action.key, action.key)
        yield f"| `{key}` | {action.name} | {action.title}. {action.help} |"
    yield ""


if __name__ == "__main__":
    REFERENCE.write_text(reference())
