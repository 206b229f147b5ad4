"""The short way to decode an entry of an index reads what the general one reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.bundle.checksum import unmask
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES
from tfckpt_trainer.bundle.index import MAX_SHARDS, TensorEntry, _any_entry, _usual_entry
from tfckpt_trainer.bundle.wire import WireError, encode_varint

VARINTS = st.builds(
    lambda head, last: bytes(byte | 0x80 for byte in head) + bytes([last]),
    st.binary(max_size=10),
    st.integers(0, 0x7F),
)
SHAPES = st.builds(lambda content: bytes([len(content)]) + content, st.binary(max_size=20))
FIELDS = st.one_of(
    st.builds(
        lambda tag, value: bytes([tag]) + value, st.sampled_from(b"\x08\x18\x20\x28"), VARINTS
    ),
    st.builds(lambda content: b"\x12" + content, SHAPES),
    st.builds(lambda content: b"\x35" + content, st.binary(max_size=5)),
    st.binary(max_size=4),
)


def optional(tag: bytes, values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(st.just(b""), values.map(lambda value: tag + value))


USUAL = st.tuples(
    st.integers(0, 0x7F).map(lambda dtype: b"\x08" + bytes([dtype])),
    SHAPES.map(lambda content: b"\x12" + content),
    optional(b"\x18", VARINTS),
    optional(b"\x20", VARINTS),
    optional(b"\x28", VARINTS),
    optional(b"\x35", st.binary(min_size=4, max_size=4)),
).map(b"".join)


def sized(head: bytes, offset: bytes, checksum: bytes, bits: int) -> bytes:
    """An entry as TensorFlow writes it, with the size of its type and shape."""
    try:
        entry = _any_entry("", head, MAX_SHARDS)
    except WireError:
        return head
    size = ITEM_SIZES.get(entry.dtype, 1) * entry.element_count ^ bits
    return head + offset + b"\x28" + encode_varint(size) + b"\x35" + checksum


DIMENSIONS = st.one_of(st.integers(0, 300), st.integers(1 << 57, 1 << 61)).map(
    lambda size: b"\x12" + bytes([len(size_of := encode_varint(size)) + 1]) + b"\x08" + size_of
)
SIZED = st.builds(
    sized,
    st.tuples(
        st.integers(0, 0x7F).map(lambda dtype: b"\x08" + bytes([dtype])),
        st.lists(DIMENSIONS, max_size=4)
        .map(b"".join)
        .map(lambda content: b"\x12" + bytes([len(content)]) + content),
        optional(b"\x18", VARINTS),
    ).map(b"".join),
    optional(b"\x20", VARINTS),
    st.binary(min_size=4, max_size=4),
    st.sampled_from([0, 0, 0, 1]),
)


def expected(data: bytes) -> TensorEntry | None:
    try:
        return _any_entry("v", data, 3)
    except WireError:
        return None


@given(st.one_of(SIZED, USUAL, st.lists(FIELDS, max_size=7).map(b"".join)))
def test_both_ways_read_the_same(data: bytes) -> None:
    assert _usual_entry("v", data, 3) in (None, expected(data))


@given(st.one_of(SIZED, USUAL), st.data())
def test_a_truncated_entry_is_no_other_entry(data: bytes, choice: st.DataObject) -> None:
    cut = data[: choice.draw(st.integers(0, len(data)))]
    assert _usual_entry("v", cut, 3) in (None, expected(cut))


@given(st.integers(1, (1 << 35) - 1), st.integers(0, 2))
def test_an_entry_as_tensorflow_writes_it_takes_the_short_way(offset: int, shard: int) -> None:
    place = (b"\x18" + bytes([shard]) if shard else b"") + b"\x20" + encode_varint(offset)
    written = b"\x08\x01\x12\x05\x12\x03\x08\xf4\x03" + place + b"\x28\xd0\x0f\x35\x26\x28\x0e\x56"
    entry = TensorEntry("v", "float32", (500,), shard, 3, offset, 2000, unmask(0x560E2826))
    assert _usual_entry("v", written, 3) == entry
