"""Encodes the protocol buffer messages of an index and of an object graph.

Fields come in the order of their numbers and zeros are left out, so the bytes are those that
TensorFlow writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from tfckpt_trainer.bundle.checksum import mask
from tfckpt_trainer.bundle.index import DTYPES, TensorEntry
from tfckpt_trainer.bundle.object_graph import Node
from tfckpt_trainer.bundle.slices import WHOLE, Slice
from tfckpt_trainer.bundle.wire import BYTES, FIXED32, VARINT, encode_varint

_NUMBERS = {name: number for number, name in DTYPES.items()}
_PRODUCER = 1
"""Version of the format that TensorFlow stores in the header."""


def encode_header(shard_count: int) -> bytes:
    """Encodes the `BundleHeaderProto` of a checkpoint with `shard_count` data files."""
    return _integer(1, shard_count) + _message(3, _integer(1, _PRODUCER))


def encode_entry(entry: TensorEntry) -> bytes:
    """Encodes the `BundleEntryProto` of a tensor or of one part of it."""
    start = _integer(1, _NUMBERS[entry.dtype]) + _message(2, _shape(entry.shape))
    if entry.slices:
        return start + b"".join(_message(7, _slice(part)) for part in entry.slices)
    place = _integer(3, entry.shard) + _integer(4, entry.offset) + _integer(5, entry.size)
    checksum = mask(entry.crc32c)
    return start + place + (_tag(6, FIXED32) + struct.pack("<I", checksum) if checksum else b"")


def encode_object_graph(nodes: Sequence[Node]) -> bytes:
    """Encodes a `TrackableObjectGraph`, whose first node is the root."""
    return b"".join(_message(1, _node(node)) for node in nodes)


def _node(node: Node) -> bytes:
    children = (_integer(1, child) + _text(2, name) for name, child in node.children.items())
    attributes = (
        _text(1, attribute.name)
        + _text(2, attribute.full_name)
        + _text(3, attribute.checkpoint_key)
        for attribute in node.attributes
    )
    slots = (
        _integer(1, slot.variable_node) + _text(2, slot.slot_name) + _integer(3, slot.slot_node)
        for slot in node.slot_variables
    )
    return _messages(1, children) + _messages(2, attributes) + _messages(3, slots)


def _shape(shape: Iterable[int]) -> bytes:
    return _messages(2, (_integer(1, size) for size in shape))


def _slice(part: Slice) -> bytes:
    # A length is written even if it is zero, because its absence means the whole dimension.
    return _messages(
        1,
        (
            _integer(1, start)
            + (b"" if length == WHOLE else _tag(2, VARINT) + encode_varint(length))
            for start, length in part.extents
        ),
    )


def _messages(number: int, contents: Iterable[bytes]) -> bytes:
    return b"".join(_message(number, content) for content in contents)


def _message(number: int, content: bytes) -> bytes:
    return _tag(number, BYTES) + encode_varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode("utf-8", "surrogateescape")) if text else b""


def _integer(number: int, value: int) -> bytes:
    return _tag(number, VARINT) + encode_varint(value) if value else b""


def _tag(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])
