"""Crafted indexes: our reader agrees with TensorFlow's, or it reports what is wrong."""

from __future__ import annotations

import os
import random

import pytest
from crafted_indexes import Layout, crafted, table, write_sound
from differences import find_differences

from tfckpt_trainer.bundle.index import read_index, read_shard_count
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError

SECONDS = int(os.environ.get("FUZZ_SECONDS", "3"))


@pytest.mark.tensorflow
def test_no_difference_is_silent():
    """A new seed each time; a failure names it."""
    first = random.SystemRandom().randrange(1 << 40)
    tried, sound, found = find_differences(first, 1_000_000, SECONDS)
    assert found == []
    assert tried > sound > 0


def test_a_seed_makes_the_same_index_again(tmp_path):
    entries = write_sound(tmp_path / "ckpt")
    assert [crafted(entries, seed) for seed in range(50)] == [
        crafted(entries, seed) for seed in range(50)
    ]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(),
        Layout(compressed=True),
        Layout(interval=1),
        Layout(interval=3, sizes=[1, 4, 2], compressed=True),
    ],
    ids=["plain", "snappy", "restarts", "blocks"],
)
def test_layouts_that_tensorflow_reads_are_read(tmp_path, layout):
    prefix = tmp_path / "ckpt"
    entries = write_sound(prefix)
    before = read_index(prefix)
    prefix.with_name("ckpt.index").write_bytes(table(entries, layout))
    assert read_index(prefix) == before
    assert read_shard_count(prefix) == 2
    assert verify(prefix).findings == ()


def _all_but_last(limits):
    return [b"a" if place else limit for place, limit in enumerate(limits)]


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(change_restarts=lambda points: []), "has 0 restart points"),
        (Layout(change_restarts=lambda points: [3, *points]), "first restart point"),
        (Layout(interval=2, change_restarts=lambda points: [0, 5]), "restart point is not at"),
        (Layout(sizes=[4], change_limits=_all_but_last), "TensorFlow cannot find"),
        (Layout(sizes=[4], change_limits=lambda limits: [b"zzz"] * 2), "keys are not in order"),
        (Layout(kind=2), "has compression 2; expected 0 (none) or 1 (Snappy)"),
        (Layout(kind=1), "compressed data"),
    ],
)
def test_keys_that_tensorflow_cannot_find_are_reported(tmp_path, layout, words):
    prefix = tmp_path / "ckpt"
    entries = write_sound(prefix)
    prefix.with_name("ckpt.index").write_bytes(table(entries, layout))
    with pytest.raises(BundleError, match=words.replace("(", r"\(").replace(")", r"\)")):
        read_index(prefix)
    assert [finding.kind for finding in verify(prefix).findings] == ["index"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (b"\x0d\x02\0\0\0", "field 1 has wire type 5"),
        (b"\x02\x00", "a field has the number 0"),
        (b"\x88\x80\x80\x80\x80\x00\x02", "a field number is too large"),
        (b"\x12\x05\x12\x03\x12\x01\xff", "the name of a dimension is not UTF-8"),
    ],
    ids=["wire-type", "field-0", "long-tag", "text"],
)
def test_messages_that_tensorflow_reads_otherwise_are_reported(tmp_path, change, words):
    prefix = tmp_path / "ckpt"
    entries = [
        (key, value + (change if key == b"a" else b"")) for key, value in write_sound(prefix)
    ]
    prefix.with_name("ckpt.index").write_bytes(table(entries, Layout()))
    with pytest.raises(BundleError, match=words):
        read_index(prefix)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"\x08\x02\x1a\x03\x1a\x01\x01", "readers of version 1 cannot read it"),
        (b"\x08\x02\x1a\x02\x18\x01", "readers of version 1 cannot read it"),
        (b"\x08\x02\x1a\x06\x18\x81\x80\x80\x80\x10", "readers of version 1 cannot read it"),
        (b"\x08\x02\x1a\x01\x08\x1a\x01\x08", "a number is truncated"),
        (b"\x08\x02\x1a\x0b\x08" + b"\xff" * 9 + b"\x01", "which does not exist"),
        (b"\x08\x02\x1a\x02\x10\x00\x1a\x02\x10\x02", "needs a reader of version 2"),
    ],
)
def test_versions_that_tensorflow_refuses_are_refused(tmp_path, header, words):
    prefix = tmp_path / "ckpt"
    entries = [(b"", header), *write_sound(prefix)[1:]]
    prefix.with_name("ckpt.index").write_bytes(table(entries, Layout()))
    with pytest.raises(BundleError, match=words):
        read_index(prefix)


def test_a_shape_in_two_pieces_is_put_together(tmp_path):
    prefix = tmp_path / "ckpt"
    entries = [
        (key, value + (b"\x12\x04\x12\x02\x08\x01" if key == b"a" else b""))
        for key, value in write_sound(prefix)
    ]
    prefix.with_name("ckpt.index").write_bytes(table(entries, Layout()))
    assert read_index(prefix).entries["a"].shape == (3, 1)
    assert verify(prefix).findings == ()


def test_names_and_parts_that_tensorflow_lists_otherwise_are_findings(tmp_path):
    prefix = tmp_path / "ckpt"
    entries = dict(write_sound(prefix))
    entries[b"\xff"] = entries[b"a"]
    del entries[b"cut"]
    prefix.with_name("ckpt.index").write_bytes(table(sorted(entries.items()), Layout()))
    found = {(finding.severity, finding.kind) for finding in verify(prefix).findings}
    assert found == {("warning", "name"), ("warning", "slice-unused"), ("error", "overlap")}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cut: cut + cut[-14:], "a part is listed twice"),
        (lambda cut: cut[:12] + b"\x3a\x04\x0a\x00\x0a\x00", "a part is the whole tensor"),
        (lambda cut: b"\x08\x01" + cut[2:], "is not a plain tensor of type float32"),
    ],
)
def test_parts_that_tensorflow_cannot_put_together_are_reported(tmp_path, change, words):
    prefix = tmp_path / "ckpt"
    entries = dict(write_sound(prefix))
    entries[b"cut"] = change(entries[b"cut"])
    prefix.with_name("ckpt.index").write_bytes(table(sorted(entries.items()), Layout()))
    found = verify(prefix).findings
    assert any(words in finding.message for finding in found), found


def test_a_resource_cannot_be_restored(tmp_path):
    prefix = tmp_path / "ckpt"
    entries = dict(write_sound(prefix))
    entries[b"a"] = b"\x08\x14" + entries[b"a"][2:]
    prefix.with_name("ckpt.index").write_bytes(table(sorted(entries.items()), Layout()))
    assert [(one.severity, one.kind) for one in verify(prefix).findings] == [("error", "dtype")]


def test_a_compressed_index_that_expands_too_far_is_refused(tmp_path):
    prefix = tmp_path / "ckpt"
    entries = write_sound(prefix)
    large = [*entries[:-1], (b"z", bytes(5 << 20))]
    prefix.with_name("ckpt.index").write_bytes(table(large, Layout(compressed=True)))
    assert prefix.with_name("ckpt.index").stat().st_size < 1 << 20
    with pytest.raises(BundleError, match="compressed blocks have more than 4194304 bytes"):
        read_index(prefix)
    with pytest.raises(BundleError, match="compressed blocks have more than 4194304 bytes"):
        read_shard_count(prefix)
