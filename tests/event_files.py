"""Reads and writes event files of TensorBoard, without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2

from tfckpt_trainer.bundle.checksum import crc32c, mask

_LENGTH = struct.Struct("<Q")
_CHECKSUM_BYTES = 4
"""After the length, and after the event."""


def events_in(directory: Path) -> Iterator[event_pb2.Event]:
    """Yields the events below a directory, in the order in which they were written."""
    for path in sorted(directory.rglob("*tfevents*")):
        content, at = path.read_bytes(), 0
        while at + _LENGTH.size <= len(content):
            (length,) = _LENGTH.unpack_from(content, at)
            at += _LENGTH.size + _CHECKSUM_BYTES
            if at + length + _CHECKSUM_BYTES > len(content):
                break  # Somebody still writes it.
            yield event_pb2.Event.FromString(content[at : at + length])
            at += length + _CHECKSUM_BYTES


def steps_with(tag: str, directory: Path) -> list[int]:
    """Returns the steps of the events below a directory that have a value of this name."""
    return [
        event.step
        for event in events_in(directory)
        if any(value.tag == tag for value in event.summary.value)
    ]


def record(content: bytes) -> bytes:
    """Returns an event as it is in an event file."""
    length = _LENGTH.pack(len(content))
    return length + _checksum(length) + content + _checksum(content)


def _checksum(data: bytes) -> bytes:
    return mask(crc32c(data)).to_bytes(_CHECKSUM_BYTES, "little")


def event(step: int, *values: summary_pb2.Summary.Value, at: float = 1000.0) -> bytes:
    """Returns an event with values as it is in an event file."""
    summary = summary_pb2.Summary(value=values)
    content = event_pb2.Event(wall_time=at + step, step=step, summary=summary)
    return record(content.SerializeToString())


def simple_value(tag: str, value: float) -> summary_pb2.Summary.Value:
    """Returns a scalar as TensorFlow 1 writes it."""
    return summary_pb2.Summary.Value(tag=tag, simple_value=value)


def tensor_value(
    tag: str, tensor: tensor_pb2.TensorProto, plugin: str = "scalars"
) -> summary_pb2.Summary.Value:
    """Returns a tensor as TensorFlow 2 writes it."""
    value = summary_pb2.Summary.Value(tag=tag, tensor=tensor)
    value.metadata.plugin_data.plugin_name = plugin
    return value


def float_value(tag: str, value: float) -> summary_pb2.Summary.Value:
    """Returns a scalar as `tf.summary.scalar` writes it."""
    return tensor_value(tag, tensor_pb2.TensorProto(dtype=1, float_val=[value]))
