"""Actions that users configure: `[actions.NAME]` of the configuration file.

Only that file defines them, never a run directory: a command from there would be that of anybody
who can write there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.results import MOST_VALUES, NAME_PATTERN
from tfckpt_tui.formats.checkpoint_columns import COLUMNS

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
"""What an action can be called."""
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>\w+)\}\}|\{(?P<name>\w+)\}")

_EXAMPLE = 'such as command = "python eval.py {path}"'


class ActsOn(StrEnum):
    """What an action is run for."""

    CHECKPOINT = "checkpoint"
    MARKED = "marked"
    RUN = "run"


OF_RUN = ("run",)
OF_CHECKPOINT = ("path", "name", "step", "branch")

_PLACEHOLDERS = {
    ActsOn.CHECKPOINT: (*OF_RUN, *OF_CHECKPOINT),
    ActsOn.MARKED: (*OF_RUN, "paths"),
    ActsOn.RUN: OF_RUN,
}

_Column = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]


class ActionSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command of the user that the app and `act` run.

    Attributes:
        command: Its words, as in a shell, which does not run it; with placeholders.
        title: A short imperative sentence for the palette and the help.
        key: Its key on the dashboard; without one, the palette has it.
        on: `checkpoint` runs it for each selected or marked checkpoint, `marked` once for all of
            them, `run` once for the run.
        column: Numbers in the JSON object that it prints as its last line, which are stored for
            the checkpoint.
        each_new: Whether the app runs it for each new checkpoint while it is open.
        directory: Where it is run; by default where the app was started.
    """

    command: str
    title: str = ""
    key: str = ""
    on: ActsOn = ActsOn.CHECKPOINT
    column: _Column | Annotated[list[_Column], msgspec.Meta(max_length=MOST_VALUES)] = []
    each_new: bool = False
    directory: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the numbers that are stored."""
        return (self.column,) if isinstance(self.column, str) else tuple(self.column)

    @property
    def words(self) -> list[str]:
        """The words of the command, with placeholders.

        Raises:
            UsageError: There are none, or a quote is open.
        """
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"the command cannot be split into words: {error}.") from error
        if not words:
            raise UsageError(f"it has no command; write one {_EXAMPLE}.")
        return words


def fill(word: str, value_of: Callable[[str], str]) -> str:
    """Returns a word of a command with its placeholders filled; `{{name}}` stands for `{name}`.

    Args:
        word: One word: what is filled in never becomes several, or a part of the next one.
        value_of: Returns the value of a placeholder.
    """

    def replace(match: re.Match[str]) -> str:
        return f"{{{match['literal']}}}" if match["literal"] else value_of(match["name"])

    return _PLACEHOLDER.sub(replace, word)


def check_actions(actions: Mapping[str, ActionSection], taken: Collection[str]) -> None:
    """Checks the sections of actions.

    Args:
        actions: By name.
        taken: The names of the app's own actions.

    Raises:
        UsageError: A name, a command or a placeholder is invalid.
    """
    for name, action in actions.items():
        try:
            _check(name, action, taken)
        except UsageError as error:
            raise UsageError(f"[actions.{name}]: {error}") from error


def _check(name: str, action: ActionSection, taken: Collection[str]) -> None:
    if not NAME.fullmatch(name):
        raise UsageError("a name has small letters, digits and hyphens, such as evaluate.")
    if name in taken:
        raise UsageError("the app has an action of this name; choose another one.")
    known = _PLACEHOLDERS[action.on]
    words = action.words

    def check_placeholder(found: str) -> str:
        if found not in known:
            names = ", ".join(f"{{{one}}}" for one in known)
            raise UsageError(
                f'unknown placeholder {{{found}}}. With on = "{action.on}" there are {names}. '
                f"Write {{{{{found}}}}} for the text {{{found}}}."
            )
        return ""

    for word in words:
        fill(word, check_placeholder)
        if "{paths}" in word and word not in {"{paths}", "{{paths}}"}:
            raise UsageError("{paths} has to be a word of its own: it becomes one for each path.")
    if "{" in words[0]:
        raise UsageError(f"the first word is the program, and has no placeholder, {_EXAMPLE}.")
    _check_results(action)


def _check_results(action: ActionSection) -> None:
    if action.on is not ActsOn.CHECKPOINT:
        for field in ("column", "each_new"):
            if getattr(action, field):
                raise UsageError(f'{field} needs on = "checkpoint".')
    taken = {column.key for column in COLUMNS} - {"loss"}
    taken |= {column.number_filter.field for column in COLUMNS if column.number_filter}
    for column in action.columns:
        if column in taken:
            raise UsageError(f"{column!r} is a column of all checkpoints; choose another name.")
