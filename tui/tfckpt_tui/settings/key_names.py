"""Names of keys, by Textual's rules: which ones exist, and which one a user may have meant."""

from __future__ import annotations

import re
import unicodedata
from difflib import get_close_matches
from functools import cache

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
