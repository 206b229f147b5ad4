"""Our decompression against a real encoder, and against damaged and hostile streams."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.bundle.snappy import decompress, expanded_size
from tfckpt_trainer.bundle.wire import WireError

REPEATED = st.lists(st.tuples(st.binary(max_size=200), st.integers(0, 400)), max_size=30).map(
    lambda pieces: b"".join(data * count for data, count in pieces)
)


@given(data=st.one_of(st.binary(max_size=5000), REPEATED))
def test_what_an_encoder_wrote_is_read_back(data):
    stream = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(stream) == data
    assert expanded_size(stream) == len(data)


def test_literals_and_copies_of_every_length():
    for size in [0, 1, 59, 60, 61, 255, 256, 257, 65_535, 65_536, 65_537, 1 << 20]:
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        assert decompress(bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"\x05\x10abcde", b"abcde"),
        (b"\x05\xf0\x04abcde", b"abcde"),
        (b"\x05\xf8\x04\0\0abcde", b"abcde"),
        (b"\x05\xfc\x04\0\0\0abcde", b"abcde"),
        (b"\x08\x00a\x0d\x01", b"a" * 8),
        (b"\x06\x04ab\x0e\x02\x00", b"ababab"),
        (b"\x06\x04ab\x0f\x02\x00\x00\x00", b"ababab"),
        (b"\x85\x80\x80\x80\x00\x10abcde", b"abcde"),
    ],
)
def test_elements_that_encoders_rarely_write(stream, data):
    assert decompress(stream) == data
    assert bytes(cramjam.snappy.decompress_raw(stream)) == data


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"", "truncated"),
        (b"\xff", "truncated"),
        (b"\xff\xff\xff\xff\x7f", "longer than Snappy allows"),
        (b"\x80\x80\x80\x80\x80\x00", "truncated or too long"),
        (b"\x05", "has 0 bytes; it declares 5"),
        (b"\x05\x10abc", "truncated"),
        (b"\x05\xf0", "truncated"),
        (b"\x05\x10abcde\x00f", "longer than the 5 bytes"),
        (b"\x05\x01\x01", "before its start"),
        (b"\x06\x04ab\x0e\x00\x00", "before its start"),
        (b"\x06\x04ab\x0e\x03\x00", "before its start"),
        (b"\x06\x04ab\x0e\x02", "truncated"),
    ],
)
def test_damage_is_reported(stream, words):
    with pytest.raises(WireError, match=words):
        decompress(stream)


@given(stream=st.binary(max_size=300))
def test_garbage_is_read_as_the_encoder_reads_it(stream):
    try:
        expected = bytes(cramjam.snappy.decompress_raw(stream))
    except Exception:
        expected = None
    found = None
    with suppress(WireError):
        found = decompress(stream)
    assert found == expected or stream == b""


def test_a_stream_that_declares_gigabytes_takes_no_memory():
    tracemalloc.start()
    with pytest.raises(WireError):
        decompress(b"\xff\xff\xff\xff\x0f\x00a" + b"\xfe\x01\x00" * 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
