"""Checkpoints written without TensorFlow: read back, refused, cut off, and copied."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundle_writing import Parts, array, in_parts, peak_memory, rows, strings, variants, write
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, numpy_dtype
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import Attribute, Node, SlotVariable, read_object_graph
from tfckpt_trainer.bundle.tensors import read_strings, read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.bundle.writing import bundle_writer
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.errors import BundleError, RefusedError, UsageError
from tfckpt_trainer.rundir.storage.files import start_flush
from tfckpt_trainer.words.clean_text import is_utf8
from weekly import tries

KEYS = st.text(min_size=1, max_size=40).filter(lambda name: name[0] != "\0" and is_utf8(name))


@tries(100)
@given(
    tensors=st.dictionaries(
        KEYS,
        st.tuples(st.sampled_from(sorted(ITEM_SIZES)), st.lists(st.integers(0, 4), max_size=6)),
    ),
    shard_size=st.one_of(st.none(), st.integers(1, 200)),
)
def test_what_was_written_is_read_back(tmp_path_factory, tensors, shard_size):
    prefix = tmp_path_factory.mktemp("written") / "ckpt"
    random = np.random.default_rng(0)
    data = {
        name: random.bytes(ITEM_SIZES[dtype] * int(np.prod(shape, dtype=int)))
        for name, (dtype, shape) in tensors.items()
    }
    with BundleWriter(prefix, shard_size=shard_size) as writer:
        for name, (dtype, shape) in tensors.items():
            writer.add(name, dtype, shape, [data[name][:3], data[name][3:]])
        paths = writer.commit()
    assert sorted(paths) == sorted(prefix.parent.iterdir())
    assert verify(prefix).findings == ()
    index = read_index(prefix)
    assert set(index.entries) == set(tensors)
    for name, entry in index.entries.items():
        assert (entry.dtype, list(entry.shape)) == tensors[name]
        assert read_tensor_bytes(prefix, entry) == data[name]


def test_the_disk_begins_early_with_what_is_not_written_again(tmp_path, monkeypatch):
    started = []

    def start(descriptor, begin, size):
        started.append((begin, size))
        assert os.fstat(descriptor).st_size >= begin
        start_flush(descriptor, begin, size)

    monkeypatch.setattr(bundle_writer, "_STRETCH", 1 << 20)
    monkeypatch.setattr(bundle_writer, "start_flush", start)
    values = np.random.default_rng(0).integers(0, 100, 700_000, dtype="<i4")
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add("large", "int32", values.shape, [values])
        for number in range(300):
            writer.add(f"small/{number}", "int32", (1000,), [values[:1000]])
        writer.commit()
        assert sum(size for _, size in started) == writer.size >> 20 << 20
    assert [begin for begin, _ in started] == [begin << 20 for begin in range(3)]
    assert verify(tmp_path / "ckpt").findings == ()
    entry = read_index(tmp_path / "ckpt").entries["large"]
    assert read_tensor_bytes(tmp_path / "ckpt", entry) == values.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "bool", "complex128"])
def test_arrays_are_written_in_row_major_order(tmp_path, dtype):
    values = np.arange(6).reshape(2, 3).astype(numpy_dtype(dtype))
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add("turned", dtype, (3, 2), [values.T])
        writer.add("scalar", dtype, (), [values[0, 1]])
        writer.commit()
    entries = read_index(tmp_path / "ckpt").entries
    assert read_tensor_bytes(tmp_path / "ckpt", entries["turned"]) == values.T.tobytes()
    assert read_tensor_bytes(tmp_path / "ckpt", entries["scalar"]) == values[0, 1].tobytes()


def test_rows_of_a_tensor_are_its_parts(tmp_path):
    values = np.arange(24, dtype="<i4").reshape(6, 2, 2)
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add_rows("w", "int32", (6, 2, 2), (0, 4), [values[:3], values[3:4]])
        writer.add_rows("w", "int32", (6, 2, 2), (4, 2), [values[4:]])
        with pytest.raises(UsageError, match="two tensors with the name w"):
            writer.add_rows("w", "int32", (6, 2, 2), (4, 2), [values[4:]])
        writer.commit(durable=False)
    assert verify(tmp_path / "ckpt").findings == ()
    index = read_index(tmp_path / "ckpt")
    assert index.entries["w"].shape == (6, 2, 2)
    read = [
        read_tensor_bytes(tmp_path / "ckpt", index.parts["w", part])
        for part in index.entries["w"].slices
    ]
    assert b"".join(read) == values.tobytes()


def test_strings_and_an_object_graph(tmp_path):
    nodes = (
        Node({"model": 1, "optimizer": 2}, (), ()),
        Node({}, (Attribute("VARIABLE_VALUE", "w", "model/key"),), ()),
        Node({"m": 3}, (), (SlotVariable(1, "momentum", 3),)),
        Node({}, (Attribute("VARIABLE_VALUE", "w/m", "other"),), ()),
    )
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add_strings("texts", [b"", b"a" * 300, "ü".encode()])
        writer.add_strings("one", [b"\0\xff"], shape=())
        writer.add("model/key", "float32", (), [np.float32(1.5)])
        writer.add("other", "float32", (), [np.float32(2.5)])
        writer.add_object_graph(nodes)
        writer.commit()
    prefix = tmp_path / "ckpt"
    assert verify(prefix).findings == ()
    index = read_index(prefix)
    assert read_strings(prefix, index.entries["texts"]) == [b"", b"a" * 300, "ü".encode()]
    assert read_strings(prefix, index.entries["one"]) == [b"\0\xff"]
    assert read_object_graph(prefix, index) == nodes


def test_everything_that_the_format_has_is_copied_with_its_parts(tmp_path):
    tensors = {
        "cut": in_parts(np.arange(12.0).reshape(6, 2), rows(6, 2, 4, 2)),
        "plain": array([1, 2, 3], shard=1),
        "text": strings([b"", b"abc"]),
        "state": variants([b"one", b"", b"three"]),
    }
    write(tmp_path / "old", tensors, shards=2)
    old = read_index(tmp_path / "old")
    seen: list[int] = []
    with BundleWriter(tmp_path / "new", shard_size=1) as writer:
        for entry in old.entries.values():
            writer.copy(tmp_path / "old", old, entry, name=f"a/{entry.name}", on_chunk=seen.append)
        assert writer.names == {f"a/{name}" for name in tensors}
        assert writer.size == sum(seen) == sum(entry.size for entry in old.stored())
        writer.commit()
    new = read_index(tmp_path / "new")
    assert new.shard_count == len(tensors) + 1
    assert verify(tmp_path / "new").findings == ()
    for name, tensor in tensors.items():
        entry = new.entries[f"a/{name}"]
        assert entry.slices == old.entries[name].slices
        if not isinstance(tensor, Parts):
            assert read_tensor_bytes(tmp_path / "new", entry) == b"".join(tensor.chunks)


def test_a_damaged_tensor_is_not_copied(tmp_path):
    write(tmp_path / "old", {"w": array([1.0, 2.0])})
    data = tmp_path / "old.data-00000-of-00001"
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    index = read_index(tmp_path / "old")
    damaged = pytest.raises(BundleError, match="w does not match its checksum")
    with damaged, BundleWriter(tmp_path / "new") as writer:
        writer.copy(tmp_path / "old", index, index.entries["w"])
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("name", ["ckpt.index", "ckpt.data-00000-of-00002", "ckpt_temp"])
def test_a_name_that_is_taken_is_refused(tmp_path, name):
    (tmp_path / name).write_text("in use")
    with pytest.raises(RefusedError, match="another name"):
        BundleWriter(tmp_path / "ckpt")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_name_that_was_taken_in_the_meantime_is_refused(tmp_path):
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add("w", "int8", (1,), [b"1"])
        write(tmp_path / "ckpt", {"other": array([2.0])})
        with pytest.raises(RefusedError, match="another name"):
            writer.commit()
    assert list(read_index(tmp_path / "ckpt").entries) == ["other"]
    assert not (tmp_path / "ckpt_temp").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("w", "float32", (2,), [b"1234"]), "w has 4 bytes; expected 8 for float32 2."),
        (("w", "string", (1,), [b"1234"]), "w is string; expected a numeric type."),
        (("", "int8", (), [b"1"]), "cannot be the name"),
        (("\0a", "int8", (), [b"1"]), "cannot be the name"),
        (("first", "int8", (), [b"1"]), "two tensors with the name first"),
    ],
)
def test_wrong_tensors_are_refused(tmp_path, arguments, message):
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add("first", "int8", (), [b"1"])
        with pytest.raises(UsageError, match=message):
            writer.add(*arguments)


def test_nothing_is_left_without_a_commit(tmp_path):
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add("w", "int8", (1,), [b"1"])
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, sys
from pathlib import Path
from tfckpt_trainer.bundle.writing import bundle_writer
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with BundleWriter(Path(sys.argv[1])) as writer:
        writer.add("w", "int8", (3 << 20,), (bytes(1000 * n) for n in range(1, 200)))
except OSError as error:
    print(error.strerror)
"""


def test_nothing_is_left_where_a_file_cannot_be_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "ckpt"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_data_that_was_moved_is_taken_back_if_the_index_cannot_be(tmp_path, monkeypatch):
    def refuse(source, target, real=bundle_writer.move):
        if target.name == "ckpt.index":
            raise FileExistsError(target)
        real(source, target)

    monkeypatch.setattr(bundle_writer, "move", refuse)
    with BundleWriter(tmp_path / "ckpt") as writer:
        writer.add("w", "int8", (1,), [b"1"])
        with pytest.raises(FileExistsError):
            writer.commit()
    assert list(tmp_path.iterdir()) == []


LARGE = """
import sys
from pathlib import Path
import numpy as np
from tfckpt_trainer.bundle.writing import bundle_writer
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter

chunk = np.ones(1 << 18, np.float32)
with BundleWriter(Path(sys.argv[1])) as writer:
    writer.add("w", "float32", (1 << 26,), (chunk for _ in range(256)))
    writer.commit()
"""


@pytest.mark.e2e
def test_memory_does_not_depend_on_the_size_of_a_tensor(tmp_path):
    assert peak_memory(LARGE, tmp_path / "ckpt") < 80 << 20
    assert (tmp_path / "ckpt.data-00000-of-00001").stat().st_size == 256 << 20
