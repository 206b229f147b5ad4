"""Checks the keys of `[keys]` in the configuration file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_tui.settings.key_names import SAME_AS, is_key, key_name, similar_key


class ReservedKey(msgspec.Struct, frozen=True):
    """A key that has a fixed meaning.

    Attributes:
        purpose: What it does, as a sentence without its subject.
        action: The action that it performs, which may also have it in `[keys]`; empty if there is
            none.
    """

    purpose: str
    action: str = ""


RESERVED_KEYS = {
    "up": ReservedKey("moves up"),
    "k": ReservedKey("moves up"),
    "down": ReservedKey("moves down"),
    "j": ReservedKey("moves down"),
    "pageup": ReservedKey("moves up one page"),
    "pagedown": ReservedKey("moves down one page"),
    "home": ReservedKey("goes to the first row"),
    "g": ReservedKey("goes to the first row"),
    "end": ReservedKey("goes to the last row"),
    "G": ReservedKey("goes to the last row of other screens", "guards"),
    "tab": ReservedKey("goes to the next pane"),
    "shift+tab": ReservedKey("goes to the previous pane"),
    "escape": ReservedKey("dismisses failures, clears the filter, unmarks all"),
    "f1": ReservedKey("opens the help", "help"),
    "ctrl+p": ReservedKey("opens the palette", "palette"),
    "ctrl+q": ReservedKey("closes the app", "detach"),
    "ctrl+c": ReservedKey("copies the selected text"),
    "super+c": ReservedKey("copies the selected text"),
    "ctrl+z": ReservedKey("suspends the app"),
}
"""Keys that no action can have, by the names that Textual gives them."""

CHECKPOINT_ACTIONS = ("restore", "prune", "pin", "verify", "export", "charts")
"""Actions that keep their keys on the screen of a checkpoint."""

CHECKPOINT_KEYS = {
    "enter": "shows statistics",
    "slash": "searches the variables",
    "question_mark": "opens the help",
    "q": "closes the screen",
    "right": "opens a group of variables",
    "l": "opens a group of variables",
    "left": "closes a group of variables",
    "h": "closes a group of variables",
}
"""Other keys of the screen of a checkpoint, which `CHECKPOINT_ACTIONS` cannot have."""

_EXAMPLES = "s, S, f2, ctrl+s, space or asterisk"


def check_keys(keys: Mapping[str, str], default_keys: Mapping[str, str]) -> None:
    """Checks that every action has a key of its own.

    Args:
        keys: The section `[keys]`: several keys of an action are separated by commas.
        default_keys: The key of each action by its name.

    Raises:
        UsageError: An action is unknown, or a key cannot be used.
    """
    unknown = sorted(keys.keys() - default_keys.keys())
    if unknown:
        actions = ", ".join(default_keys)
        raise UsageError(f"{unknown[0]!r} is not an action. Actions are {actions}.")
    owners: dict[str, str] = {}
    for name, default in default_keys.items():
        wanted = keys.get(name, default)
        names = list(_names_of(wanted))
        if wanted and not names:
            raise UsageError(f"{name} is {wanted!r}, which is not a key. Write comma for a comma.")
        for key in names:
            _check_key(name, key)
            owner = owners.setdefault(key, name)
            if owner != name:
                raise UsageError(
                    f"{key} is the key of both {owner} and {name}; give one of them another."
                )


def _check_key(name: str, key: str) -> None:
    """Checks that the action `name` can have `key`."""
    if key in SAME_AS:
        raise UsageError(
            f"{key} cannot be used: terminals send {SAME_AS[key]} for it. Give {name} another key."
        )
    if not is_key(key):
        similar = similar_key(key)
        hint = f"Write {similar}." if similar else f"Use one such as {_EXAMPLES}."
        raise UsageError(f"{name} is {key!r}, which is not a key. {hint}")
    purpose = _other_purpose(name, key)
    if purpose:
        raise UsageError(f"{key} cannot be used: it {purpose}. Give {name} another key.")


def _names_of(keys: str) -> Iterator[str]:
    """Yields the names of keys that are separated by commas."""
    stripped = (key.strip() for key in keys.split(","))
    return (key_name(key) for key in stripped if key)


def _other_purpose(name: str, key: str) -> str:
    """Returns what `key` does instead of the action `name`; empty if it is free."""
    reserved = RESERVED_KEYS.get(key)
    if reserved is not None:
        return "" if reserved.action == name else reserved.purpose
    purpose = CHECKPOINT_KEYS.get(key, "") if name in CHECKPOINT_ACTIONS else ""
    return f"{purpose} on the screen of a checkpoint" if purpose else ""
