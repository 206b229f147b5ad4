"""Protocol buffer text format, of messages whose fields are strings and numbers.

It accepts what `google.protobuf.text_format` of Python accepts, which is how TensorFlow reads
its `checkpoint` file. Nested messages are refused: nothing here recurses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

_Value = TypeVar("_Value")

LONGEST_VALUE = 1 << 16
"""Characters of one value. A path has at most 4,096."""

MOST_VALUES = 1 << 20
"""Values of one field."""

# Possessive quantifiers (`++`, `*+`): backtracking on a line of megabytes would need gigabytes.
_TOKEN = re.compile(
    r"(?:\s++|#[^\n]*+)*+"
    r"([a-zA-Z_][0-9a-zA-Z_+-]*+"
    r"|(?:[0-9+-]|\.[0-9])[0-9a-zA-Z_.+-]*+"
    r'|"(?:[^"\\\n]++|\\[^\n])*+"'
    r"|'(?:[^'\\\n]++|\\[^\n])*+'"
    r"|.|)"
)
_OCTAL_NUMBER = re.compile(r"-?0[0-9]")
_INFINITY = re.compile(r"(-?)inf(?:inity)?f?", re.IGNORECASE)
_ONE_HEX_DIGIT = r"(?<!\\)(\\++)x(?=[0-9a-fA-F](?![0-9a-fA-F]))"
_ESCAPE = rb"(?s)\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|(.?))"
_NAMED = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b'"': b'"', b"'": b"'", b"\\": b"\\", b"\n": b"",
}  # fmt: skip


class TextMessage(msgspec.Struct, frozen=True):
    """The values of a message by field name, in the order of the text.

    Attributes:
        texts: The values of string fields.
        numbers: The values of number fields.
    """

    texts: dict[str, list[str]]
    numbers: dict[str, list[float]]


def parse_text_message(
    text: str, *, texts: Collection[str], numbers: Collection[str], repeated: Collection[str]
) -> TextMessage:
    """Parses a message in text format.

    Args:
        text: The message.
        texts: The names of its string fields.
        numbers: The names of its number fields (`double`).
        repeated: Those that may be written as a list in brackets.

    Raises:
        ValueError: The text is no such message; the error says what was found where.
    """
    message = TextMessage({name: [] for name in texts}, {name: [] for name in numbers})
    tokens = _Tokens(text)
    while name := tokens.take():
        if name in message.texts:
            _read_field(tokens, message.texts[name], tokens.take_text, name in repeated)
        elif name in message.numbers:
            _read_field(tokens, message.numbers[name], tokens.take_number, name in repeated)
        else:
            raise tokens.unexpected(name, "a field of the message")
    return message


def _read_field(
    tokens: _Tokens, values: list[_Value], take: Callable[[], _Value], is_repeated: bool
) -> None:
    """Reads what follows the name of a field, with the separator that may end it."""
    tokens.expect(":")
    if not (is_repeated and tokens.skip("[")):
        values.append(take())
    elif not tokens.skip("]"):
        values.append(take())
        while not tokens.skip("]"):
            tokens.expect(",")
            values.append(take())
            _bound(values)
    _bound(values)
    if not tokens.skip(","):
        tokens.skip(";")


def _bound(values: list[_Value]) -> None:
    if len(values) > MOST_VALUES:
        raise ValueError(f"a field has more than {MOST_VALUES:,} values")


class _Tokens:
    """The tokens of a text, one after the other; an empty one is the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._matches = _TOKEN.finditer(text)
        self._place = self._next_at = 0
        self._next = ""
        self._advance()

    def take(self) -> str:
        """Returns the next token."""
        token, self._place = self._next, self._next_at
        if len(token) > LONGEST_VALUE:
            raise self.unexpected(token, f"at most {LONGEST_VALUE:,} characters")
        self._advance()
        return token

    def skip(self, token: str) -> bool:
        """Takes the next token if it is `token`; returns whether it was."""
        if self._next != token:
            return False
        self._advance()
        return True

    def expect(self, token: str) -> None:
        """Takes the next token, which must be `token`."""
        if not self.skip(token):
            self._place = self._next_at
            raise self.unexpected(self._next, repr(token))

    def take_text(self) -> str:
        """Returns the value of the next string; strings beside each other are one."""
        size = 0
        parts: list[bytes] = []
        while not parts or self._next[:1] in {'"', "'"}:
            token = self.take()
            size += len(token)
            if len(token) < 2 or token[0] not in "\"'" or size > LONGEST_VALUE:
                raise self.unexpected(token, "a text in quotes")
            try:
                parts.append(_unescaped(token[1:-1]))
            except ValueError:
                raise self.unexpected(token, "valid escapes") from None
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise self.unexpected(token, "a text in UTF-8") from None

    def take_number(self) -> float:
        """Returns the value of the next number."""
        token = self.take()
        try:
            return _number(token)
        except ValueError:
            raise self.unexpected(token, "a number") from None

    def unexpected(self, token: str, expected: str) -> ValueError:
        """Returns the error of a token that is not as expected."""
        line = self._text.count("\n", 0, self._place) + 1
        found = repr(token[:40]) if token else "the end"
        return ValueError(f"found {found} at line {line}; expected {expected}")

    def _advance(self) -> None:
        match = next(self._matches, None)
        if match is not None:
            self._next, self._next_at = match[1], match.start(1)


def _number(token: str) -> float:
    if _OCTAL_NUMBER.match(token):
        raise ValueError(token)
    infinity = _INFINITY.fullmatch(token)
    if infinity is not None:
        return float(f"{infinity[1]}inf")
    try:
        return float(token)
    except ValueError:
        return float(token.rstrip("fF"))


def _unescaped(text: str) -> bytes:
    r"""Returns the bytes of a text without its quotes, in UTF-8.

    As in Python's implementation, `\u` escapes are replaced first: `\u005cn` is a line break.
    """
    if "\\" not in text:
        return text.encode()
    text = re.sub(_ONE_HEX_DIGIT, _with_two_digits, text)
    text = text.encode("raw_unicode_escape").decode("raw_unicode_escape")
    return re.sub(_ESCAPE, _byte, text.encode())


def _with_two_digits(match: re.Match[str]) -> str:
    """Returns the beginning of a hexadecimal escape of one digit as that of one of two."""
    is_escaped = len(match[1]) % 2 == 0
    return match[0] if is_escaped else match[0] + "0"


def _byte(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes([int(match[1], 8)])
    if match[2]:
        return bytes([int(match[2], 16)])
    if match[3] in {b"", b"x", b"u", b"U", b"N"}:
        raise ValueError(match[0])
    return _NAMED.get(match[3], match[0])
