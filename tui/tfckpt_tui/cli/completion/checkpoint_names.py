"""Completes the names of checkpoints and of Keras's files, from the names of files alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tfckpt_trainer.catalog.directory.other_formats import format_of
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import parse_numbered_name
from tfckpt_tui.cli.completion.run_directories import complete_directory
from tfckpt_tui.cli.completion.shells import words_of_shell
from tfckpt_tui.formats.text import clean

MOST_OFFERED = 100
"""A shell takes about a millisecond for each."""

_INDEX = ".index"


class CheckpointName(click.types.StringParamType):
    """A name or step of a checkpoint in the directory of the same command line."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the names that begin so, the newest first; see `offered`."""
        del param
        # After an option without its value, click has not named the arguments.
        directory = ctx.params.get("directory") or next(iter(ctx.args), None)
        if directory is None:
            return []
        return [CompletionItem(name) for name in offered(self._names(Path(directory)), incomplete)]

    def _names(self, directory: Path) -> list[str]:
        return names_in(directory)


class CheckpointOrFile(CheckpointName):
    """A name or step of a checkpoint, or the name of a file of another format beside it."""

    def _names(self, directory: Path) -> list[str]:
        return [*super()._names(directory), *files_in(directory)]


class CheckpointOrDirectory(CheckpointName):
    """A name of a checkpoint, or else a directory."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns checkpoints and directories that begin so."""
        names = super().shell_complete(ctx, param, incomplete)
        places = complete_directory(incomplete)
        # A shell that completes directories itself shows nothing else. Recent runs begin otherwise
        # than the word, which a shell replaces by what all begin with.
        beside = () if incomplete else places
        return [*names, *(item for item in beside if item.type == "plain")] if names else places


CHECKPOINT = CheckpointName()
CHECKPOINT_OR_FILE = CheckpointOrFile()


def complete_other_run(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes an option with two values: another run, and then a checkpoint in it."""
    del ctx
    words = words_of_shell()
    if incomplete and words[-1:] == [incomplete]:
        words.pop()
    while words and words[0] not in param.opts:
        del words[0]
    directory = words[1:2]
    if not directory:
        return complete_directory(incomplete)
    return [CompletionItem(name) for name in offered(names_in(Path(directory[0])), incomplete)]


def names_in(directory: Path) -> list[str]:
    """Returns the names of the checkpoints in a directory; none if it cannot be read."""
    files = _listed(directory)
    return [name.removesuffix(_INDEX) for name in files if name.endswith(_INDEX)]


def files_in(directory: Path) -> list[str]:
    """Returns the names of files of other formats in a directory; none if it cannot be read."""
    return [name for name in _listed(directory) if format_of(name) and not name.startswith(".")]


def _listed(directory: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(expand_user(directory))
    return []


def offered(names: Iterable[str], typed: str) -> Sequence[str]:
    """Returns what to offer for the beginning of a name, or of a step.

    If too many names begin so, returns the different ways to go on by one character.

    Args:
        names: The names of all checkpoints.
        typed: What was typed so far.
    """
    candidates = [name for name in names if clean(name) == name]
    offers = {name for name in candidates if name.startswith(typed)}
    if not offers and typed.isdigit():
        steps = {str(parsed.step) for parsed in map(parse_numbered_name, candidates) if parsed}
        offers = {step for step in steps if step.startswith(typed)}
    if len(offers) <= MOST_OFFERED:
        return sorted(offers, key=newest_first)
    # Never one alone: the shell would take it for a whole name.
    same = common_length(min(offers), max(offers))
    return sorted({name[: same + 1] for name in offers})[:MOST_OFFERED]


def common_length(text: str, other: str) -> int:
    """Returns the number of characters with which both texts begin."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(text), len(other)))


def newest_first(name: str) -> tuple[int, str]:
    """Returns a sort key: names with the highest step first, names without one last."""
    parsed = parse_numbered_name(name)
    return (-parsed.step if parsed is not None else 1, name)
