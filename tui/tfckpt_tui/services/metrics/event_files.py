"""Reads scalars of TensorBoard event files, without TensorFlow.

A record is the length of an event (8 bytes, little endian), its masked CRC32C, the event, and the
CRC32C of that (`tensorflow/core/lib/io/record_writer.cc`). An event is a protocol buffer
(`tensorflow/core/util/event.proto`). TensorFlow 2 writes a scalar as a tensor of the plugin
`scalars`, TensorFlow 1 as a simple value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt_trainer.bundle.checksum import crc32c, mask
from tfckpt_trainer.rundir.event_log import Tail
from tfckpt_trainer.rundir.records.event import SeriesPoint

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

MOST_NAMES = 1_000
"""Names of values that are remembered of a file; values with further names are left out."""

LONGEST_NAME = 1_000
"""Characters. Values with a longer name are left out."""

BLOCK_BYTES = 1 << 20
"""Bytes that a read takes. A longer record is left out: no scalar takes so much."""

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CHECKSUM.size
_RECORD_BYTES = _HEADER_BYTES + _CHECKSUM.size
"""Bytes of a record without its event."""

_TIME_FIELD = b"\x09"


class _NumberType(NamedTuple):
    """How a tensor stores numbers: the format of one in `struct`, and the field for a few."""

    format: str
    field: str


_NUMBER_TYPES = {
    1: _NumberType("<f", "float_val"),
    2: _NumberType("<d", "double_val"),
    3: _NumberType("<i", "int_val"),
    9: _NumberType("<q", "int64_val"),
}
"""By type in `tensorflow/core/framework/types.proto`."""

_HALF = 19
_SCALARS = "scalars"


class EventFileTail(Tail[SeriesPoint]):
    """Reads the new scalars of an event file, as points of branch 0.

    Values of one step that follow each other are one point. Damaged parts are skipped.
    """

    def __init__(self, path: Path, prefix: str, first: int) -> None:
        """Creates a reader.

        Args:
            path: The file.
            prefix: What the names of its metrics begin with.
            first: Bytes at the end of the file in which the first read begins.
        """
        super().__init__(path, SeriesPoint, first=first, most=BLOCK_BYTES)
        self._prefix = prefix
        self._are_scalars: dict[str, bool] = {}
        self._began = 0
        self._next = 0

    def _parse(self, data: bytes) -> tuple[list[SeriesPoint], int]:
        # Imported here: most runs have no event files to read.
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event

        if self.beginnings != self._began:
            self._began, self._next = self.beginnings, 0
        groups: list[_Group] = []
        # Behind a record that was too long to read.
        at = min(max(0, self._next - self._offset), len(data))
        while len(data) - at >= _HEADER_BYTES:
            length = self._length_at(data, at)
            if length is None:
                at = _next_place(data, at)
                continue
            end = at + _RECORD_BYTES + length
            if end > len(data):
                if length + _RECORD_BYTES >= BLOCK_BYTES:
                    self._next, at = self._offset + end, len(data)
                break
            content = data[at + _HEADER_BYTES : end - _CHECKSUM.size]
            (checksum,) = _CHECKSUM.unpack_from(data, end - _CHECKSUM.size)
            at = end
            if mask(crc32c(content)) == checksum:
                try:
                    event = Event.FromString(content)
                except DecodeError:
                    continue
                self._take(event.wall_time, event.step, event.summary.value, groups)
        return [group.point for group in groups], at

    def _length_at(self, data: bytes, at: int) -> int | None:
        """Returns the length of the event of a record that begins there; None if none does."""
        (checksum,) = _CHECKSUM.unpack_from(data, at + _LENGTH.size)
        if mask(crc32c(data[at : at + _LENGTH.size])) != checksum:
            return None
        length: int = _LENGTH.unpack_from(data, at)[0]
        return length

    def _take(
        self, at: float, step: int, values: Iterable[Summary.Value], groups: list[_Group]
    ) -> None:
        for value in values:
            number = self._number(value)
            if number is None:
                continue
            name = f"{self._prefix}{value.tag}"
            if not groups or groups[-1].step != step or name in groups[-1].metrics:
                groups.append(_Group(at, step, {}))
            groups[-1].metrics[name] = None if math.isnan(number) else number

    def _number(self, value: Summary.Value) -> float | None:
        """Returns the number of a value; None if it is no scalar."""
        kind = value.WhichOneof("value")
        if kind not in ("simple_value", "tensor"):
            return None
        is_scalar = self._are_scalars.get(value.tag)
        if is_scalar is None:
            if len(self._are_scalars) >= MOST_NAMES or len(value.tag) > LONGEST_NAME:
                return None
            # Only the first value with a name says what it is.
            plugin = value.metadata.plugin_data.plugin_name
            is_scalar = plugin in ("", _SCALARS)
            self._are_scalars[value.tag] = is_scalar
        if not is_scalar:
            return None
        return value.simple_value if kind == "simple_value" else _number_of(value.tensor)


def _next_place(data: bytes, at: int) -> int:
    """Returns where the next record may begin: its event begins with the field of its time."""
    time_field = data.find(_TIME_FIELD, at + 1 + _HEADER_BYTES)
    return time_field - _HEADER_BYTES if time_field >= 0 else max(at + 1, len(data) - _HEADER_BYTES)


class _Group(NamedTuple):
    """Values of one step."""

    at: float
    step: int
    metrics: dict[str, float | None]

    @property
    def point(self) -> SeriesPoint:
        return SeriesPoint(at=self.at, step=self.step, branch=0, metrics=self.metrics)


def _number_of(tensor: TensorProto) -> float | None:
    """Returns the number of a tensor; None if it has several, or is not numeric."""
    if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim):
        return None
    content = tensor.tensor_content
    if tensor.dtype == _HALF:
        # A few are stored as integers with their bits.
        bits = content or struct.pack("<H", *(tensor.half_val[:1] or (0,)))
        return _unpacked("<e", bits)
    number_type = _NUMBER_TYPES.get(tensor.dtype)
    if number_type is None:
        return None
    if content:
        return _unpacked(number_type.format, content)
    numbers: Any = getattr(tensor, number_type.field)
    # TensorFlow stores no zeros.
    return float(numbers[0]) if numbers else 0.0


def _unpacked(number_format: str, content: bytes) -> float | None:
    if len(content) != struct.calcsize(number_format):
        return None
    return float(struct.unpack(number_format, content)[0])
