"""Reads scalars of TensorBoard event files, without TensorFlow.

A record is the length of an event (8 bytes, little endian), its masked CRC32C, the event, and the
CRC32C of that (`tensorflow/core/lib/io/record_writer.cc`). An event is a protocol buffer
(`tensorflow/core/util/event.proto`). TensorFlow 2 writes a scalar as a tensor of the plugin
`scalars`, TensorFlow 1 as a simple value.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt_trainer.bundle.checksum import crc32c, mask
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.tail import Tail
from tfckpt_tui.services.metrics.alike_events import AlikeEvents

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event
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
_HEADER = struct.Struct("<QI")
_HEADER_BYTES = _HEADER.size
_RECORD_BYTES = _HEADER_BYTES + _CHECKSUM.size
"""Bytes of a record without its event."""

_TIME_FIELD = b"\x09"


class _NumberType(NamedTuple):
    """How a tensor stores numbers: the format of one in `struct`, and the field for a few."""

    format: str
    field: str


_HALF = 19
_NUMBER_TYPES = {
    1: _NumberType("<f", "float_val"),
    2: _NumberType("<d", "double_val"),
    3: _NumberType("<i", "int_val"),
    9: _NumberType("<q", "int64_val"),
    _HALF: _NumberType("<e", "half_val"),
}
"""By type in `tensorflow/core/framework/types.proto`."""

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
        self._names: dict[str, str] = {}
        self._alike = AlikeEvents()
        self._began = 0
        self._next = 0

    def _parse(self, data: bytes) -> tuple[list[SeriesPoint], int]:
        # Imported here: most runs have no event files to read.
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event

        if self.beginnings != self._began:
            self._began, self._next = self.beginnings, 0
        points: list[SeriesPoint] = []
        # Behind a record that was too long to read.
        at = min(max(0, self._next - self._offset), len(data))
        while len(data) - at >= _HEADER_BYTES:
            length = _length_of(data[at : at + _HEADER_BYTES])
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
                alike = self._alike.read(content)
                if alike is not None:
                    _add(points, *alike)
                    continue
                try:
                    self._take(Event.FromString(content), content, points)
                except DecodeError:
                    continue
        return points, at

    def _take(self, event: Event, content: bytes, points: list[SeriesPoint]) -> None:
        """Adds the scalars of an event to the points of its block."""
        # This runs for millions of values: each look at a field of a message takes time.
        step = event.step
        for value in event.summary.value:
            tag = value.tag
            name = self._names[tag] if tag in self._names else self._learn(value)
            if not name:
                continue
            kind = value.WhichOneof("value")
            if kind == "tensor":
                number = _number_of(value.tensor)
            else:
                number = value.simple_value if kind == "simple_value" else None
            if number is None:
                continue
            _add(points, name, event.wall_time, step, number)
            if len(event.summary.value) == 1:
                self._alike.remember(content, event, name)

    def _learn(self, value: Summary.Value) -> str:
        """Returns the name of a metric by the first value with its tag; empty if it is none."""
        tag: str = value.tag
        is_number = value.HasField("simple_value") or value.HasField("tensor")
        if not is_number or len(self._names) >= MOST_NAMES or len(tag) > LONGEST_NAME:
            return ""
        is_scalar = value.metadata.plugin_data.plugin_name in ("", _SCALARS)
        name = self._names[tag] = f"{self._prefix}{tag}" if is_scalar else ""
        return name


def _add(points: list[SeriesPoint], name: str, at: float, step: int, number: float) -> None:
    """Adds a value to the last point, or to a new one."""
    last = points[-1] if points else None
    if last is None or last.step != step or name in last.metrics:
        last = SeriesPoint(at=at, step=step, branch=0, metrics={})
        points.append(last)
    last.metrics[name] = None if math.isnan(number) else number


@lru_cache(maxsize=1024)
def _length_of(header: bytes) -> int | None:
    """Returns the length of the event of the record that begins so; None if none does."""
    length, checksum = _HEADER.unpack(header)
    return length if mask(crc32c(header[: _LENGTH.size])) == checksum else None


def _next_place(data: bytes, at: int) -> int:
    """Returns where the next record may begin: its event begins with the field of its time."""
    time_field = data.find(_TIME_FIELD, at + 1 + _HEADER_BYTES)
    return time_field - _HEADER_BYTES if time_field >= 0 else max(at + 1, len(data) - _HEADER_BYTES)


def _number_of(tensor: TensorProto) -> float | None:
    """Returns the number of a tensor; None if it has several, or is not numeric."""
    number_type = _NUMBER_TYPES.get(tensor.dtype)
    if number_type is None:
        return None
    content = tensor.tensor_content
    if content:
        return _unpacked(number_type.format, content)
    if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim):
        return None
    numbers: Any = getattr(tensor, number_type.field)
    # TensorFlow stores no zeros.
    number = numbers[0] if numbers else 0
    if tensor.dtype == _HALF:
        # An integer with its bits.
        return _unpacked(number_type.format, struct.pack("<H", number & 0xFFFF))
    return float(number)


def _unpacked(number_format: str, content: bytes) -> float | None:
    if len(content) != struct.calcsize(number_format):
        return None
    return float(struct.unpack(number_format, content)[0])
