"""Reads event files of TensorBoard, without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tensorboard.compat.proto import event_pb2

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
