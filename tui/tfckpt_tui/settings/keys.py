"""Checks the keys of `[keys]` in the configuration file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_tui.settings.packages import PAGES, brought_by_packages

_SHORT_NAMES = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
"""Textual's names of characters that differ from their Unicode names."""

_COMMON_KEYS = (
    *("escape", "enter", "tab", "backspace", "space", "insert", "delete", "home", "end"),
    *("left", "right", "up", "down", "pageup", "pagedown"),
)

NAMED_KEYS = frozenset(
    (
        *_COMMON_KEYS,
        *(f"f{number}" for number in range(1, 36)),
        *("caps_lock", "scroll_lock", "num_lock", "print_screen", "pause", "menu"),
        *("decimal", "divide", "multiply", "subtract", "add", "equal", "separator", "kp_begin"),
        *("media_play", "media_pause", "media_play_pause", "media_reverse", "media_stop"),
        *("media_fast_forward", "media_rewind", "media_track_next", "media_track_previous"),
        *("media_record", "lower_volume", "raise_volume", "mute_volume"),
    )
)
"""Keys that are not characters."""

SAME_AS = {
    "ctrl+i": "tab",
    "ctrl+m": "enter",
    "ctrl+h": "backspace",
    "ctrl+left_square_bracket": "escape",
}
"""Keys for which terminals send another key."""

_MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
"""In the order in which Textual names them."""

_OTHER_NAMES = {
    "control": "ctrl",
    "option": "alt",
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "page_up": "pageup",
    "pgdn": "pagedown",
    "pgdown": "pagedown",
    "page_down": "pagedown",
}

_LAST_CODE = 0x3000
"""Characters from here on are letters of East Asia, which have no names, and pictures."""


def key_name(key: str) -> str:
    """Returns Textual's name of a key, which may be written as a character."""
    if len(key) != 1 or key.isalnum():
        return key
    name = unicodedata.name(key, key).lower().replace("-", "_").replace(" ", "_")
    return _SHORT_NAMES.get(name, name)


def is_key(name: str) -> bool:
    """Whether a terminal can send a key of this name."""
    if name == "ctrl+@":  # Textual's name of the NUL character, unlike that of other characters.
        return True
    *modifiers, base = name.split("+")
    if modifiers != [modifier for modifier in _MODIFIERS if modifier in modifiers]:
        return False
    if name in SAME_AS:
        return False
    if base in NAMED_KEYS:
        return True
    # With shift alone, the terminal sends another character; with others, a small letter.
    return _is_character(base) and modifiers != ["shift"] and not (modifiers and base.isupper())


def similar_key(name: str) -> str:
    """Returns the key that a user may have meant by a wrong name; empty if none is similar."""
    words = [key_name(word) for word in name.split()]
    if len(words) > 1 and all(map(is_key, words)):
        return ",".join(words)
    parts = [_OTHER_NAMES.get(part, part) for part in re.split(r"[+-]", name.lower())]
    modifiers, base = sorted(parts[:-1]), key_name(parts[-1])
    if modifiers == ["shift"] and len(base) == 1:
        return base.upper()
    key = "+".join([*modifiers, _SHORT_NAMES.get(base, base)])
    if is_key(key):
        return key
    keys = sorted((*_COMMON_KEYS, *map(key_name, map(chr, range(33, 127)))))
    return next(iter(get_close_matches(name.lower(), keys, n=1, cutoff=0.75)), "")


def _is_character(name: str) -> bool:
    if len(name) == 1:
        return name.isprintable() and key_name(name) == name
    try:
        character = unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return name in _character_names()
    return character.isprintable() and key_name(character) == name


@cache
def _character_names() -> frozenset[str]:
    """Returns the names of characters; those with a hyphen in Unicode cannot be looked up."""
    characters = map(chr, range(_LAST_CODE))
    return frozenset(key_name(character) for character in characters if character.isprintable())


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
    # Actions of other packages are imported later; their own keys give way to all others.
    more = keys.keys() - default_keys.keys()
    of_packages = more & brought_by_packages(PAGES).keys() if more else set()
    unknown = sorted(more - of_packages)
    if unknown:
        actions = ", ".join(default_keys)
        raise UsageError(
            f"{unknown[0]!r} is not an action, and no installed package brings it. Actions are "
            f"{actions}."
        )
    owners: dict[str, str] = {}
    for name, default in {**default_keys, **dict.fromkeys(of_packages, "")}.items():
        wanted = keys.get(name, default)
        names = list(names_of(wanted))
        if wanted and not names:
            raise UsageError(f"{name} is {wanted!r}, which is not a key. Write comma for a comma.")
        for key in names:
            check_key(name, key)
            owner = owners.setdefault(key, name)
            if owner != name:
                raise UsageError(
                    f"{key} is the key of both {owner} and {name}; give one of them another."
                )


def check_key(name: str, key: str) -> None:
    """Checks that the action `name` can have `key`.

    Raises:
        UsageError: No terminal can send it, or it has a fixed meaning.
    """
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


def names_of(keys: str) -> Iterator[str]:
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
