"""What to do next: a command on the command line, a key in the app.

Messages are read in both. `Advice` holds the sentences once, and each front end fills in what its
users type.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

import msgspec

KeyOf = Callable[[str], str]
"""Returns the key of an action of the app by the name of the action."""


_DASHED = "-[^-]"
"""How a name may begin; all options that an advice has are long ones."""

_NAME = r"\{(\w+)\}"
"""The name of a value in a template."""


class CommandOrKey(msgspec.Struct, frozen=True):
    """A command of `tfckpt-tui`, and the action of the app that does the same.

    Attributes:
        action: Name of the action in the app.
        words: The command, without the name of the program; empty in advice for the app only.
        choice: The button to choose in the dialog of the action; empty if any will do.
    """

    action: str
    words: tuple[str, ...] = ()
    choice: str = ""

    @property
    def command(self) -> str:
        """The command, to be pasted; a name that begins with a dash is told from an option."""
        words = list(self.words)
        dashed = next((n for n, word in enumerate(words) if re.match(_DASHED, word)), None)
        if dashed is not None:
            words.insert(dashed, "--")
        return f"`{shlex.join(('tfckpt-tui', *words))}`"

    def key(self, key_of: KeyOf) -> str:
        """Returns the key in words; alone if there is no command to say the same with."""
        if not self.words:
            return key_of(self.action)
        choice = f" ({self.choice})" if self.choice else ""
        return f"the key {key_of(self.action)}{choice}"


Part = str | CommandOrKey


class Advice(msgspec.Struct, frozen=True):
    """What to do next, as sentences.

    Attributes:
        parts: The sentences; a `CommandOrKey` stands for what a user types.
        app_parts: The sentences for the app, where they differ; empty if it needs none.
    """

    parts: tuple[Part, ...]
    app_parts: tuple[Part, ...] | None = None

    @classmethod
    def of(cls, template: str, in_app: str | None = None, /, **values: object) -> Advice:
        """Returns an advice.

        Args:
            template: The sentences, with the names of values in braces.
            in_app: The sentences for the app, where they differ; empty if it needs none.
            values: What the names stand for: a `CommandOrKey`, or what is shown as text.
        """
        parts = _fill(template, values)
        return cls(parts, None if in_app is None else _fill(in_app, values))

    def then(self, template: str, /, **values: object) -> Advice:
        """Returns this advice, followed by further sentences; the arguments are those of `of`."""
        further = _fill(f" {template}", values)
        in_app = None if self.app_parts is None else (*self.app_parts, *further)
        return Advice((*self.parts, *further), in_app)

    def after(self, found: str) -> Advice:
        """Returns this advice behind sentences that say what happened."""
        in_app = None if self.app_parts is None else (f"{found} ", *self.app_parts)
        return Advice((f"{found} ", *self.parts), in_app)

    @property
    def app_actions(self) -> tuple[str, ...]:
        """The actions whose keys the sentences for the app name."""
        parts = self.parts if self.app_parts is None else self.app_parts
        return tuple(part.action for part in parts if isinstance(part, CommandOrKey))

    def __str__(self) -> str:
        """Returns the sentences for the command line and for logs."""
        return "".join(part if isinstance(part, str) else part.command for part in self.parts)

    def in_app(self, key_of: KeyOf) -> str:
        """Returns the sentences for the app."""
        parts = self.parts if self.app_parts is None else self.app_parts
        return "".join(part if isinstance(part, str) else part.key(key_of) for part in parts)


def _fill(template: str, values: Mapping[str, object]) -> tuple[Part, ...]:
    parts: list[Part] = []
    # `string.Formatter` takes a hundredth of the time of a command to import.
    for place, text in enumerate(re.split(_NAME, template)):
        value = values[text] if place % 2 else text
        parts.append(value if isinstance(value, CommandOrKey) else str(value))
    return tuple(filter(None, parts))


def command_or_key(action: str, *words: object, choice: str = "") -> CommandOrKey:
    """Returns a part of an advice.

    Args:
        action: Name of the action in the app.
        words: The command, without the name of the program.
        choice: The button to choose in the dialog of the action.
    """
    return CommandOrKey(action, tuple(map(str, words)), choice)


def only_command(before: str, *words: object) -> Advice:
    """Returns a sentence that ends with a command, and that the app leaves out.

    Args:
        before: The sentence up to the command.
        words: The command, without the name of the program.
    """
    return Advice.of("{before}{command}.", "", before=before, command=command_or_key("", *words))
