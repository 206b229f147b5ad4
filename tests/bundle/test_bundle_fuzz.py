"""Garbage in any file leads to the one typed error, in bounded time and memory: no crash."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bundle_writing import (
    GRAPH_KEY,
    Object,
    array,
    graph,
    in_parts,
    masked,
    rows,
    strings,
    variable,
    variants,
    write,
)
from tfckpt_trainer.bundle.analysis.contents import describe_tensors
from tfckpt_trainer.bundle.checksum import crc32c, unmask
from tfckpt_trainer.bundle.index import read_index, read_shard_count
from tfckpt_trainer.bundle.links import NotFetchedError
from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.bundle.slices import WHOLE, Slice, decode_slice_key, slice_key
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.bundle.tensors import read_strings, read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.bundle.wire import WireError, fields, read_varint
from tfckpt_trainer.errors import BundleError, DamagedFileError, TfckptError
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts, VerificationRecord
from tfckpt_trainer.rundir.storage.documents import decode, encode
from weekly import tries

LIMIT = 64 << 20
"""Bytes that reading a file of some kilobytes may take at most."""

fuzzing = settings(tries(300), deadline=timedelta(seconds=30))
"""A sound file of this size takes milliseconds, on a loaded machine many times as long."""


def sound(prefix: Path) -> list[Path]:
    """A checkpoint with everything that the format has; returns its files, the index last."""
    nodes = [
        Object(children={"model": 1, "optimizer": 2}),
        Object(children={"w": 3}),
        Object(slots=[(3, "m", 4)]),
        Object(attributes=[variable("model/w")]),
        Object(attributes=[variable("optimizer/m")]),
    ]
    tensors = {
        variable("model/w")[2]: array([[1.0, 2.0], [3.0, 4.0]]),
        variable("optimizer/m")[2]: array([[0.5] * 2] * 2, shard=1),
        "cut": in_parts([[float(n), 0.0] for n in range(6)], rows(6, 2, 4, 2)),
        "text": strings([b"", b"abc", "ü".encode() * 90]),
        "state": variants([b"one", b"", b"three" * 30]),
        GRAPH_KEY: graph(nodes),
    }
    return write(prefix, tensors, shards=2)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    root = tmp_path_factory.mktemp("sound")
    return {path.name: path.read_bytes() for path in sound(root / "ckpt")}


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("mutants")


def mutations(size: int) -> st.SearchStrategy[list[tuple[str, int, bytes]]]:
    """Edits of a file: bytes overwritten, taken out, put in, or all behind a place cut off."""
    one = st.tuples(
        st.sampled_from(["over", "out", "in", "cut"]),
        st.integers(0, size),
        st.binary(min_size=1, max_size=12),
    )
    return st.lists(one, min_size=1, max_size=4)


def mutated(content: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    for kind, place, data in edits:
        if kind == "over":
            content = content[:place] + data + content[place + len(data) :]
        elif kind == "out":
            content = content[:place] + content[place + len(data) :]
        elif kind == "in":
            content = content[:place] + data + content[place:]
        else:
            content = content[:place]
    return content


def with_right_checksums(index: bytes) -> bytes:
    """Mends the checksums of all blocks that can be found, so that what is behind is reached."""
    content = bytearray(index)
    try:
        position, numbers = len(content) - 48, []
        for _ in range(4):
            number, position = read_varint(index, position)
            numbers.append(number)
        blocks = [(numbers[0], numbers[1]), (numbers[2], numbers[3]), (0, numbers[0] - 5)]
    except (WireError, IndexError):
        return index
    for start, size in blocks:
        if start >= 0 and size >= 0 and start + size + 5 <= len(content):
            covered = bytes(content[start : start + size + 1])
            struct.pack_into("<I", content, start + size + 1, masked(crc32c(covered)))
    return bytes(content)


def read_all(prefix: Path) -> None:
    """Reads a checkpoint in every way there is."""
    verify(prefix, digests=True, finite=True)
    read_shard_count(prefix)
    index = read_index(prefix)
    try:
        nodes = read_object_graph(prefix, index)
    except BundleError:
        nodes = None
    describe_tensors(index, nodes)
    for entry in index.stored():
        try:
            if entry.dtype == "string":
                read_strings(prefix, entry)
            else:
                read_tensor_bytes(prefix, entry)
        except BundleError:
            continue


def check(place: Path, files: dict[str, bytes]) -> None:
    """Reading these files says what is wrong, or that nothing is, in bounded memory."""
    for name, content in files.items():
        (place / name).write_bytes(content)
    tracemalloc.start()
    # An index may count other data files than those that are there, and garbage be a pointer.
    expected = (BundleError, FileNotFoundError, NotFetchedError)
    said = said_by(lambda: read_all(place / "ckpt"), expected)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LIMIT
    assert not said or "ckpt" in said


def said_by(act: Callable[[], object], errors: tuple[type[Exception], ...]) -> str:
    """Returns the message of the error that `act` raised; nothing if it raised none."""
    try:
        act()
    except errors as error:
        return str(error)
    return ""


@fuzzing
@given(data=st.data(), mend=st.booleans())
def test_a_mutated_index(original, place, data, mend):
    edits = data.draw(mutations(len(original["ckpt.index"])))
    index = mutated(original["ckpt.index"], edits)
    check(place, {**original, "ckpt.index": with_right_checksums(index) if mend else index})


@fuzzing
@given(content=st.binary(max_size=300))
@example(content=b"version https://git-lfs.github.com/spec/v1\n")
def test_an_index_of_nothing_but_garbage(original, place, content):
    check(place, {**original, "ckpt.index": content})


@fuzzing
@given(data=st.data())
def test_mutated_data(original, place, data):
    name = data.draw(st.sampled_from(sorted(set(original) - {"ckpt.index"})))
    check(place, {**original, name: mutated(original[name], data.draw(mutations(200)))})


@fuzzing
@given(content=st.binary(max_size=400))
def test_an_object_graph_of_garbage_with_right_checksums(place, content):
    write(place / "ckpt", {"v": array([1.0]), GRAPH_KEY: strings([content], shape=())})
    read_all_of = {path.name: path.read_bytes() for path in place.glob("ckpt.*")}
    check(place, read_all_of)


@fuzzing
@given(data=st.data())
def test_a_mutated_object_graph_with_right_checksums(place, data):
    nodes = [Object(children={"a": 1}, slots=[(1, "m", 1)]), Object(attributes=[variable("a")])]
    whole = b"".join(graph(nodes).chunks)
    # Behind the length and its checksum.
    text = mutated(whole[5:], data.draw(mutations(len(whole))))
    write(place / "ckpt", {variable("a")[2]: array([1.0]), GRAPH_KEY: strings([text], shape=())})
    check(place, {path.name: path.read_bytes() for path in place.glob("ckpt.*")})


@tries(40)
@given(data=st.data())
def test_a_flipped_bit_is_always_found(original, place, data):
    name = data.draw(st.sampled_from(sorted(original)))
    bit = data.draw(st.integers(0, 8 * len(original[name]) - 1))
    content = bytearray(original[name])
    content[bit // 8] ^= 1 << bit % 8
    for file, sound_content in original.items():
        (place / file).write_bytes(bytes(content) if file == name else sound_content)
    assert verify(place / "ckpt").findings


@fuzzing
@given(content=st.binary(max_size=300))
def test_a_state_file_of_garbage(place, content):
    path = place / "checkpoint"
    path.write_bytes(content)
    said = said_by(lambda: read_state_file(path), (DamagedFileError,))
    assert not said or str(path) in said


@pytest.mark.parametrize(
    "line",
    [
        b'"' + b"a" * (15 << 20) + b'"',
        b'"' + b'\\"' * (7 << 20),
        b'"' + b"\\1" * (7 << 20),
        b'"' * 99,
    ],
    ids=["text", "open", "escapes", "quotes"],
)
def test_a_long_line_of_a_state_file_takes_little_more_memory_than_it_has(place, line):
    path = place / "checkpoint"
    path.write_bytes(b"model_checkpoint_path: " + line)
    tracemalloc.start()
    said_by(lambda: read_state_file(path), (DamagedFileError,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 20


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@fuzzing
@given(names=st.lists(NAMES, min_size=1, max_size=5), stamp=st.floats(allow_nan=False))
def test_a_state_file_is_read_as_it_was_written(place, names, stamp):
    path = place / "checkpoint"
    state = StateFile(names[-1], tuple(names), (stamp,) * len(names), stamp)
    write_state_file(path, state)
    assert read_state_file(path) == state


@fuzzing
@given(data=st.binary(max_size=200))
def test_protocol_buffers_of_garbage(data):
    with suppress(WireError):
        list(fields(data))


def test_a_length_of_more_than_64_bits_is_damage(place):
    text = strings([b"abc"])
    text.chunks = [b"\xff" * 9 + b"\x7f" + b"".join(text.chunks)[1:]]
    write(place / "ckpt", {"text": text})
    assert [finding.kind for finding in verify(place / "ckpt").findings] == ["checksum"]


EXTENTS = st.lists(
    st.tuples(st.integers(0, 1 << 62), st.one_of(st.just(WHOLE), st.integers(0, 1 << 62))),
    max_size=8,
)


@fuzzing
@given(name=st.binary(max_size=20).map(os.fsdecode), extents=EXTENTS)
def test_a_slice_key_means_what_it_was_made_of(name, extents):
    part = Slice(tuple(extents))
    assert decode_slice_key(slice_key(name, part)) == (name, part)


@fuzzing
@given(key=st.binary(max_size=60))
def test_slice_keys_of_garbage(key):
    with suppress(WireError):
        decode_slice_key(b"\0" + key)


@given(value=st.integers(0, (1 << 32) - 1))
def test_masking_is_undone(value):
    assert unmask(masked(value)) == value


RECORD = CheckpointRecord(
    name="ckpt-5",
    step=5,
    branch=0,
    sequence=3,
    saved_at=1.5,
    trigger="command",
    metrics={"loss": None},
    files=[FileFacts(name="ckpt-5.index", size=3, crc32c=7)],
)
VERIFICATION = VerificationRecord(
    name="ckpt-5",
    verified_at=1.0,
    seconds=0.5,
    bytes=3,
    tensors=1,
    files={"ckpt-5.index": (1, 2, 3)},
)


@fuzzing
@given(data=st.data())
def test_mutated_records(data):
    document = data.draw(st.sampled_from([RECORD, VERIFICATION]))
    content = encode(document)
    content = mutated(content, data.draw(mutations(len(content))))
    said = said_by(lambda: decode(content, type(document), "record.json"), (TfckptError,))
    assert not said or "record.json" in said
