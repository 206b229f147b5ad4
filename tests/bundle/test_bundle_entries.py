"""The short way to decode an entry of an index reads what the general one reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.bundle.index import _any_fields, _usual_fields
from tfckpt_trainer.bundle.wire import WireError

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


@given(st.one_of(USUAL, st.lists(FIELDS, max_size=7).map(b"".join)))
def test_both_ways_read_the_same(data: bytes) -> None:
    usual = _usual_fields(data)
    if usual is not None:
        assert usual == _any_fields(data)


@given(USUAL, st.data())
def test_a_truncated_entry_is_no_other_entry(data: bytes, choice: st.DataObject) -> None:
    cut = data[: choice.draw(st.integers(0, len(data)))]
    usual = _usual_fields(cut)
    try:
        expected = _any_fields(cut)
    except WireError:
        expected = None
    assert usual in (None, expected)


def test_an_entry_as_tensorflow_writes_it_takes_the_short_way() -> None:
    written = b"\x08\x01\x12\x05\x12\x03\x08\xf4\x03\x20\x90\x4e\x28\xd0\x0f\x35\x26\x28\x0e\x56"
    fields = _usual_fields(written)
    assert fields == (1, written[4:9], 0, 10_000, 2_000, 0x560E2826, ())
