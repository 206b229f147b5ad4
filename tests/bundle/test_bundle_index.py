"""Indexes that are sound by their checksums and absurd in what they say."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import pytest

from bundle_writing import array, masked, strings, write
from executed_lines import ExecutedLines
from tfckpt_trainer.bundle.index import read_index, read_shard_count
from tfckpt_trainer.bundle.table import MAGIC, IndexTable
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError, UnsupportedBundleError

ONE_SHARD = b"\x08\x01"
FLOAT = b"\x08\x01"


def number(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def entry(key: bytes, value: bytes, shared: int = 0) -> bytes:
    return number(shared) + number(len(key)) + number(len(value)) + key + value


HEADER = entry(b"", ONE_SHARD)


def closed(entries: bytes) -> bytes:
    """A block with its restarts, type and checksum."""
    content = entries + struct.pack("<II", 0, 1) + b"\0"
    return content + struct.pack("<I", masked(google_crc32c.value(content)))


def table(entries: bytes, handles: Callable[[bytes], Sequence[bytes]] = lambda one: [one]) -> bytes:
    """An index of one block; `handles` makes those of its index block from the one of the block."""
    block, empty = closed(entries), closed(b"")
    named = handles(number(0) + number(len(block) - 5))
    index = closed(b"".join(entry(b"\xff\xff%06d" % n, handle) for n, handle in enumerate(named)))
    footer = number(len(block)) + number(len(empty) - 5)
    footer += number(len(block) + len(empty)) + number(len(index) - 5)
    return block + empty + index + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


@contextmanager
def at_most(lines: int, megabytes: int) -> Iterator[None]:
    """Holds what is done within to lines of Python that are executed, and to memory."""
    tracemalloc.start()
    try:
        with ExecutedLines() as executed:
            yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert executed.count < lines
    assert peak < megabytes << 20


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "ckpt"


def refused(prefix: Path, content: bytes) -> BundleError:
    """Returns the error that reading this index leads to."""
    prefix.with_name("ckpt.index").write_bytes(content)
    with pytest.raises(BundleError) as caught:
        read_index(prefix)
    assert caught.value.file == "ckpt.index"
    return caught.value


def test_an_index_made_for_these_tests_is_read(prefix):
    content = table(HEADER + entry(b"model/w", FLOAT) + entry(b"x", FLOAT, shared=6))
    prefix.with_name("ckpt.index").write_bytes(content)
    assert list(read_index(prefix).entries) == ["model/w", "model/x"]
    assert read_shard_count(prefix) == 1
    assert IndexTable(prefix.with_name("ckpt.index")).unused_damage() == ""


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"", b"\x08", "header: a number is truncated"),
        (b"", b"", "header: has 0 data files"),
        (b"model/w", b"\x08", "model/w: a number is truncated"),
        (b"model/w", b"\x08\x01\x12\x05", "model/w: a field is truncated"),
        (b"model/w", b"\x08\x01\x18\x01", "model/w: has an invalid shard, offset or size"),
        (
            b"model/w",
            b"\x08\x01\x28" + b"\xff" * 9 + b"\x01",
            "model/w: has an invalid shard, offset or size",
        ),
        (b"\0model/w", FLOAT, "b'\\x00model/w': a name in a slice key is truncated"),
        (b"\xffw", b"\x08", "\\xffw: a number is truncated"),
    ],
)
def test_an_error_tells_which_entry_and_where_it_is(prefix, key, value, words):
    header = b"" if key == b"" else HEADER
    content = table(header + entry(key, value) + entry(b"\xff\xff", FLOAT))
    error = refused(prefix, content)
    assert error.problem.startswith(words)
    assert not isinstance(error, UnsupportedBundleError)
    assert error.offset == len(header) + 3 + len(key)
    assert content[error.offset :].startswith(value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"", b"\x08\x01\x10\x01", "was written on a big-endian machine"),
        (b"", b"\x08\x01\x1a\x02\x10\x07", "needs a reader of version 7"),
        (b"", b"\x08\x01\x1a\x02\x18\x01", "says that readers of version 1 cannot read it"),
        (b"model/w", b"\x08\x63", "model/w has type number 99, which this version does not know"),
    ],
)
def test_a_sound_index_that_is_not_read_here_is_no_damage(prefix, key, value, words):
    header = b"" if key == b"" else HEADER
    error = refused(prefix, table(header + entry(key, value) + entry(b"\xff\xff", FLOAT)))
    assert isinstance(error, UnsupportedBundleError)
    assert error.problem.startswith(words)


def test_the_place_is_right_in_a_shortened_key_too(prefix):
    content = table(HEADER + entry(b"model/w", FLOAT) + entry(b"x", b"\x08\x01\x18\x01", shared=6))
    error = refused(prefix, content)
    assert error.problem == "model/x: has an invalid shard, offset or size"
    assert content[error.offset :].startswith(b"\x08\x01\x18\x01")


@pytest.mark.parametrize("content", [b"", entry(b"model/w", FLOAT)], ids=["empty", "no-header"])
def test_an_index_begins_with_its_header(prefix, content):
    assert refused(prefix, table(content)).problem == "does not start with a header"
    with pytest.raises(BundleError, match="does not start with a header"):
        read_shard_count(prefix)


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40, 0), (0, 1 << 40, 1 << 40)])
def test_elements_are_counted_from_the_left_as_tensorflow_counts_them(prefix, shape):
    tensor = array([])
    tensor.shape = shape
    write(prefix, {"v": tensor})
    if shape[0] == 0:
        assert read_index(prefix).entries["v"].element_count == 0
    else:
        with pytest.raises(BundleError, match="v: has more elements than TensorFlow can count"):
            read_index(prefix)


def test_keys_that_grow_by_a_byte_each_do_not_fill_the_memory(prefix):
    """Twenty thousand names of up to twenty thousand characters, out of 140 kB."""
    grown = b"".join(entry(b"z", FLOAT, shared=length) for length in range(20_000))
    with at_most(lines=1_000_000, megabytes=32):
        error = refused(prefix, table(HEADER + grown))
    assert "keys share more bytes" in error.problem


def test_keys_may_have_in_common_what_tensorflow_leaves_out(prefix):
    """Fifteen keys after each whole one, which is all of a long path but its last letters."""
    names = [b"a" * 1000 + b"/%05d" % count for count in range(1600)]
    made = b"".join(
        entry(name, FLOAT) if place % 16 == 0 else entry(name[1000:], FLOAT, shared=1000)
        for place, name in enumerate(names)
    )
    prefix.with_name("ckpt.index").write_bytes(table(HEADER + made))
    assert [name.encode() for name in read_index(prefix).entries] == names


def test_a_block_is_named_once(prefix):
    """A megabyte that is named ten thousand times would be ten gigabytes to check."""
    content = table(HEADER + entry(b"w", bytes(1 << 20)), handles=lambda one: [one] * 10_000)
    with at_most(lines=20_000, megabytes=32):
        error = refused(prefix, content)
        with pytest.raises(BundleError, match="blocks are not in order"):
            read_shard_count(prefix)
    assert error.offset is not None


def test_of_a_huge_file_that_is_no_index_only_the_end_is_read(prefix):
    with prefix.with_name("ckpt.index").open("wb") as file:
        file.truncate(1 << 30)
    with at_most(lines=10_000, megabytes=1), pytest.raises(BundleError, match="does not end with"):
        read_shard_count(prefix)
    os.truncate(prefix.with_name("ckpt.index"), (1 << 30) + 1)
    refusal = pytest.raises(BundleError, match="an index has at most")
    with at_most(lines=10_000, megabytes=1), refusal:
        read_shard_count(prefix)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_index(prefix, make):
    make(prefix.with_name("ckpt.index"))
    with pytest.raises(BundleError, match=r"^ckpt\.index: is not a regular file$"):
        read_index(prefix)


def test_every_bit_of_an_index_matters_to_verifying(prefix):
    """Also one that makes a number of the footer longer and leaves its value."""
    index = write(prefix, {"v": array([1.0, 2.0]), "text": strings([b"a"])})[-1]
    sound = index.read_bytes()
    unnoticed = []
    for bit in range(8 * len(sound)):
        content = bytearray(sound)
        content[bit // 8] ^= 1 << bit % 8
        index.write_bytes(content)
        if not verify(prefix).findings:
            unnoticed.append(bit)
    assert unnoticed == []


def test_a_longer_number_in_the_footer_is_told_and_does_no_harm(prefix):
    index = write(prefix, {"v": array([1.0])})[-1]
    content = bytearray(index.read_bytes())
    last = max(place for place in range(len(content) - 8) if content[place])
    content[last] |= 0x80
    index.write_bytes(content)
    assert list(read_index(prefix).entries) == ["v"]
    found = [(finding.severity, finding.kind) for finding in verify(prefix).findings]
    assert found == [("warning", "index-unused")]
