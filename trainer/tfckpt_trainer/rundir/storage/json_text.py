"""JSON of other programs, decoded within bounds and with one error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

_Kind = TypeVar("_Kind")


class JsonError(ValueError):
    """A text is not the expected JSON."""


def decode_json(text: bytes | str, kind: type[_Kind]) -> _Kind:
    """Decodes a text that anyone may have written.

    The depth is bounded by a limit of Python (1,000 to 10,000 by its release), integers by 64
    bits.

    Args:
        text: The text, of bounded size.
        kind: The expected type.

    Raises:
        JsonError: It is not JSON of this type.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise JsonError("it is nested too deeply") from None
    except ValueError as error:
        # Malformed, of another type, out of range, or not UTF-8.
        raise JsonError(str(error)) from error
