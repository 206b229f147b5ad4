"""Reads events of one number without decoding them, where they are like an earlier one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_MOST = 1_000
"""Events that are remembered."""

_LONGEST = 1_000
"""Bytes of a remembered event."""

_TIME = struct.Struct("<d")
_NUMBER = struct.Struct("<f")
_TIME_FIELD = 0x09
_TIME_END = 9
_STEP_FIELD = 0x10
_SUMMARY_FIELD = 0x2A
_SIMPLE_VALUE_FIELD = b"\x15"
_CONTENT_FIELD = b"\x22\x04"
"""The field of the content of a tensor, and its length."""

_FLOAT = 1
_GOES_ON = 0x80
"""The bit of a byte of a number that another byte follows."""

_LONGEST_STEP = 9
"""Bytes: those of a negative step are more."""


class AlikeEvents:
    """Remembers events of one number of 32 bits, by all of their bytes but time, step and number.

    A program writes millions that differ in these alone. To decode one takes longer.
    """

    def __init__(self) -> None:
        # By the length without time and step: where the number is, and the names by other bytes.
        self._known: dict[int, tuple[int, dict[bytes, str]]] = {}
        self._count = 0

    def read(self, content: bytes) -> tuple[str, float, int, float] | None:
        """Returns the metric, time, step and number of an event; None if none is like it.

        Args:
            content: Its bytes.
        """
        begins, step = _step_of(content)
        known = self._known.get(len(content) - begins)
        if not begins or known is None:
            return None
        at = begins + known[0]
        name = known[1].get(content[begins:at] + content[at + _NUMBER.size :])
        if name is None:
            return None
        return name, *_TIME.unpack_from(content, 1), step, *_NUMBER.unpack_from(content, at)

    def remember(self, content: bytes, event: Event, name: str) -> None:
        """Remembers an event, unless it has other fields, or its number is of another type.

        Args:
            content: Its bytes.
            event: The same decoded; it has a value.
            name: The name of the metric of its first value.
        """
        begins, step = _step_of(content)
        size, value = event.summary.ByteSize(), event.summary.value[0]
        rest = content[begins:]
        is_alone = len(rest) == size + (2 if size < _GOES_ON else 3) and rest[0] == _SUMMARY_FIELD
        is_whole = begins and is_alone and step == event.step and len(event.summary.value) == 1
        if not is_whole or len(rest) > _LONGEST or self._count >= _MOST:
            return
        if value.WhichOneof("value") == "simple_value":
            field = _SIMPLE_VALUE_FIELD + _NUMBER.pack(value.simple_value)
        elif value.tensor.dtype == _FLOAT and len(value.tensor.tensor_content) == _NUMBER.size:
            field = _CONTENT_FIELD + value.tensor.tensor_content
        else:
            return
        if rest.count(field) != 1:
            # It may also be a part of a name.
            return
        place = rest.index(field) + len(field) - _NUMBER.size
        if self._known.get(len(rest), (None,))[0] != place:
            self._known[len(rest)] = place, {}
        self._known[len(rest)][1][rest[:place] + rest[place + _NUMBER.size :]] = name
        self._count += 1


def _step_of(content: bytes) -> tuple[int, int]:
    """Returns where the rest of an event begins, and its step; 0 and 0 of one that begins else."""
    if len(content) <= _TIME_END or content[0] != _TIME_FIELD:
        return 0, 0
    if content[_TIME_END] != _STEP_FIELD:
        # It has step 0.
        return _TIME_END, 0
    begins, step = _TIME_END + 1, 0
    first, second = content[begins : begins + 2].ljust(2)
    # Steps below 16,384 need no loop.
    if first < _GOES_ON:
        return begins + 1, first
    if second < _GOES_ON:
        return begins + 2, first - _GOES_ON | second << 7
    for place, byte in enumerate(content[begins : begins + _LONGEST_STEP]):
        step |= (byte & 0x7F) << 7 * place
        if byte < _GOES_ON:
            return begins + place + 1, step
    return 0, 0
