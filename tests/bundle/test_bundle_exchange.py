"""Tensors in files of other programs, and back: against NumPy and the safetensors package."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from array_files import safetensors_file
from bundle_writing import NUMBERS, Parts, array, in_parts, key_of, peak_memory, rows, write
from conversions import write_checkpoint, write_checkpoint_like
from tfckpt_trainer.bundle.analysis.contents import describe_tensors
from tfckpt_trainer.bundle.dtypes import numpy_dtype
from tfckpt_trainer.bundle.exchange.convert import open_array_file
from tfckpt_trainer.bundle.exchange.extract import ArrayFormat, extract_tensors
from tfckpt_trainer.bundle.exchange.hdf5 import Hdf5Reader, is_keras_archive
from tfckpt_trainer.bundle.exchange.npz import NPZ_TYPES, NpzReader
from tfckpt_trainer.bundle.exchange.verify_file import FileResult, verify_array_file
from tfckpt_trainer.bundle.exchange.whole_tensors import row_major_chunks
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import KEY, read_object_graph
from tfckpt_trainer.bundle.tensors import read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError, DamagedFileError, RefusedError, UsageError
from tfckpt_trainer.tools.tensors.edit import EditSource
from weekly import tries

PLAIN = sorted(name for name in NUMBERS if name not in NPZ_TYPES and not hasattr(ml_dtypes, name))
IN_SAFETENSORS = {
    "bfloat16", "bool", "complex64", "float16", "float32", "float64", "float8_e4m3fn",
    "float8_e5m2", "int16", "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8",
}  # fmt: skip


def values_of(dtype: str) -> np.ndarray:
    return np.array([[0, 1, 2], [3, 1, 0]]).astype(numpy_dtype(dtype))


def extracted(prefix: Path, path: Path, kind: ArrayFormat, names: list[str] | None = None):
    index = read_index(prefix)
    tensors = {name: index.entries[name] for name in names or sorted(index.entries)}
    return extract_tensors(prefix, index, tensors, path, kind)


@pytest.mark.parametrize("dtype", sorted(NUMBERS))
def test_every_type_reaches_numpy_with_its_values(tmp_path, dtype):
    values = values_of(dtype)
    write(tmp_path / "c", {"a/b": array(values), "s": array(values[0, 1]), "e": array(values[:0])})
    done = extracted(tmp_path / "c", tmp_path / "c.npz", ArrayFormat.NPZ)
    with np.load(tmp_path / "c.npz") as found:
        assert sorted(found) == ["a/b", "e", "s"]
        assert found["a/b"].dtype == NPZ_TYPES.get(dtype, dtype)
        assert np.array_equal(found["a/b"].astype(values.dtype), values)
        assert found["s"].shape == ()
        assert found["e"].shape == (0, 3)
        assert done.bytes == sum(one.nbytes for one in found.values())
    assert set(done.widened.values()) == ({NPZ_TYPES[dtype]} if dtype in NPZ_TYPES else set())


@pytest.mark.parametrize(
    "dtype", sorted(name for name in NPZ_TYPES if "float8" in name or "bf" in name)
)
def test_every_bit_of_a_nan_survives_npz_and_back(tmp_path, dtype):
    size = numpy_dtype(dtype).itemsize
    bits = np.arange(1 << (8 * size), dtype=f"<u{size}")
    write(tmp_path / "c", {"a": array(bits.view(numpy_dtype(dtype)))})
    extracted(tmp_path / "c", tmp_path / "c.npz", ArrayFormat.NPZ)
    index = read_index(tmp_path / "c")
    source = EditSource(tmp_path / "c", index, describe_tensors(index, None))
    write_checkpoint_like(tmp_path / "c.npz", tmp_path / "new", source)
    stored = (tmp_path / "new.data-00000-of-00001").read_bytes()[: bits.nbytes]
    assert np.array_equal(np.frombuffer(stored, bits.dtype), bits)


@pytest.mark.parametrize("dtype", PLAIN)
def test_an_npz_is_what_savez_writes(tmp_path, dtype):
    values = values_of(dtype)
    write(tmp_path / "c", {"a": array(values)})
    extracted(tmp_path / "c", tmp_path / "ours.npz", ArrayFormat.NPZ)
    np.savez(tmp_path / "theirs.npz", a=values)
    members = []
    for name in ("ours.npz", "theirs.npz"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            members.append({one: archive.read(one) for one in archive.namelist()})
    assert members[0] == members[1]


@pytest.mark.parametrize("dtype", sorted(set(NUMBERS) - {"complex128"}))
def test_every_type_reaches_safetensors(tmp_path, dtype):
    values = values_of(dtype)
    write(tmp_path / "c", {"a/b": array(values), "s": array(values[0, 1]), "e": array(values[:0])})
    done = extracted(tmp_path / "c", tmp_path / "c.safetensors", ArrayFormat.SAFETENSORS)
    with safetensors.safe_open(tmp_path / "c.safetensors", "np") as file:
        assert file.metadata() == {"format": "tf", "checkpoint": "c"}
        assert sorted(file.keys()) == ["a/b", "e", "s"]
        assert list(file.get_slice("e").get_shape()) == [0, 3]
        if not dtype.startswith("float8"):
            found = file.get_tensor("a/b")
            assert np.array_equal(found.astype(values.dtype), values)
    assert bool(done.widened) == (dtype not in IN_SAFETENSORS)


def test_complex128_is_refused_by_safetensors_only(tmp_path):
    write(tmp_path / "c", {"a": array(values_of("complex128"))})
    with pytest.raises(UsageError, match="a is complex128, which safetensors does not have"):
        extracted(tmp_path / "c", tmp_path / "c.safetensors", ArrayFormat.SAFETENSORS)
    assert not (tmp_path / "c.safetensors").exists()


def test_npy_files_are_named_by_paths_that_stay_inside(tmp_path):
    names = ["a", "a/b", "../up", "/root", "a//b", "x y", "ü", "per%cent"]
    tensors = {name: array([float(n)]) for n, name in enumerate(names)}
    write(tmp_path / "c", {**tensors, "z\udcff": array([99.0])})
    extracted(tmp_path / "c", tmp_path / "out", ArrayFormat.NPY, [*names, "z\udcff"])
    found = {
        path.relative_to(tmp_path / "out").as_posix(): float(np.load(path)[0])
        for path in (tmp_path / "out").rglob("*.npy")
    }
    assert found == {
        "a.npy": 0, "a/b.npy": 1, "%2E%2E/up.npy": 2, "%/root.npy": 3, "a/%/b.npy": 4,
        "x y.npy": 5, "%C3%BC.npy": 6, "per%25cent.npy": 7, "z%FF.npy": 99,
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["out", "c.index", "c.data-00000-of-00001"]
    )


def boxes(shape: list[int], cuts: list[list[int]]) -> list[tuple[tuple[int, int], ...]]:
    """All blocks that these cuts of each axis make."""
    found: list[tuple[tuple[int, int], ...]] = [()]
    for size, places in zip(shape, cuts, strict=True):
        edges = sorted({0, size, *(place % size for place in places)})
        spans = [(a, b - a) for a, b in pairwise(edges)]
        found = [(*box, span) for box in found for span in spans]
    return found


@tries(150)
@given(data=st.data())
def test_parts_of_any_form_are_put_together(tmp_path_factory, data):
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    cuts = data.draw(
        st.lists(st.lists(st.integers(0, 5), max_size=2), min_size=len(shape), max_size=len(shape))
    )
    values = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape)
    prefix = tmp_path_factory.mktemp("parts") / "c"
    parts = data.draw(st.permutations(boxes(shape, cuts)))
    if len(parts) == 1:
        return
    write(prefix, {"a": in_parts(values, parts)})
    index = read_index(prefix)
    chunks = row_major_chunks(prefix, index, index.entries["a"], data.draw(st.integers(1, 60)))
    assert np.concatenate(list(chunks)).tobytes() == values.tobytes()


def test_a_damaged_part_is_reported_and_no_file_is_left(tmp_path):
    values = np.arange(12.0).reshape(6, 2)
    write(tmp_path / "c", {"a": in_parts(values, [((0, 6), (0, 1)), ((0, 6), (1, 1))])})
    data = tmp_path / "c.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"\x01")
    with pytest.raises(BundleError, match="a does not match its checksum"):
        extracted(tmp_path / "c", tmp_path / "c.npz", ArrayFormat.NPZ)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_missing_part_is_reported(tmp_path):
    tensor = in_parts(np.arange(12.0).reshape(6, 2), rows(6, 2, 4, 2))
    parts = Parts(tensor.dtype, tensor.shape, dict(list(tensor.parts.items())[:1]), [*tensor.parts])
    write(tmp_path / "c", {"a": parts})
    with pytest.raises(BundleError, match="is missing"):
        extracted(tmp_path / "c", tmp_path / "c.npz", ArrayFormat.NPZ)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", list(ArrayFormat))
def test_nothing_is_left_of_an_interrupted_extract(tmp_path, kind):
    write(tmp_path / "c", {"a/b": array([1.0]), "c": array([2.0])})
    before, index = sorted(tmp_path.rglob("*")), read_index(tmp_path / "c")
    with pytest.raises(KeyboardInterrupt):
        extract_tensors(tmp_path / "c", index, index.entries, tmp_path / "out", kind, interrupt)
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_left_of_an_interrupted_conversion(tmp_path):
    np.savez(tmp_path / "w.npz", a=np.ones(3))
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path / "w.npz", tmp_path / "c", on_progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["w.npz"]


def test_a_name_that_would_be_file_and_directory_is_refused_for_npy(tmp_path):
    write(tmp_path / "c", {"a": array([1.0]), "a.npy/b": array([2.0])})
    with pytest.raises(UsageError, match=r"a\.npy would be the file of a and a directory"):
        extracted(tmp_path / "c", tmp_path / "out", ArrayFormat.NPY)
    assert not (tmp_path / "out").exists()
    extracted(tmp_path / "c", tmp_path / "c.npz", ArrayFormat.NPZ)


@pytest.mark.parametrize("kind", list(ArrayFormat))
def test_nothing_is_replaced(tmp_path, kind):
    write(tmp_path / "c", {"a": array([1.0])})
    (tmp_path / "out").write_text("mine")
    with pytest.raises(RefusedError, match="exists"):
        extracted(tmp_path / "c", tmp_path / "out", kind)
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("kind", [ArrayFormat.NPZ, ArrayFormat.SAFETENSORS])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_checkpoint_comes_back_as_it_was(tmp_path, kind, by_name):
    kept = sorted(IN_SAFETENSORS if kind is ArrayFormat.SAFETENSORS else PLAIN)
    names = [f"model/{dtype}" if by_name else key_of(f"model/{dtype}") for dtype in kept]
    write(
        tmp_path / "c",
        {name: array(values_of(dtype)) for name, dtype in zip(names, kept, strict=True)},
    )
    extracted(tmp_path / "c", tmp_path / "file", kind)
    seen = []
    done = write_checkpoint(
        tmp_path / "file",
        tmp_path / "d",
        by_name=by_name,
        shard_size=20,
        on_progress=lambda *numbers: seen.append(numbers),
    )
    assert seen[-1] == (done.bytes, done.bytes)
    assert done.tensors == len(kept)
    assert verify(tmp_path / "d").findings == ()
    before, after = read_index(tmp_path / "c"), read_index(tmp_path / "d")
    graph = after.entries.pop(KEY, None)
    assert (graph is None) == by_name
    assert before.entries.keys() == after.entries.keys()
    for name, entry in before.entries.items():
        assert (entry.dtype, entry.shape) == (after.entries[name].dtype, after.entries[name].shape)
        read = [
            read_tensor_bytes(tmp_path / where, index.entries[name])
            for where, index in (("c", before), ("d", after))
        ]
        assert read[0] == read[1]


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
SHAPES = st.lists(st.integers(0, 4), max_size=4)


@tries(100)
@given(data=st.data(), kind=st.sampled_from([ArrayFormat.NPZ, ArrayFormat.SAFETENSORS]))
def test_any_names_shapes_and_types_come_back(tmp_path_factory, data, kind):
    """As they were, through a file that the format's own package reads alike."""
    place = tmp_path_factory.mktemp("any")
    types = sorted(IN_SAFETENSORS if kind is ArrayFormat.SAFETENSORS else PLAIN)
    kinds = st.tuples(st.sampled_from(types), SHAPES)
    made = data.draw(st.dictionaries(NAMES, kinds, min_size=1, max_size=5))
    random = np.random.default_rng(0)
    values = {
        name: random.integers(0, 2, shape).astype(numpy_dtype(dtype))
        for name, (dtype, shape) in made.items()
    }
    write(place / "c", {name: array(one) for name, one in values.items()})
    extracted(place / "c", place / "file", kind)
    if kind is ArrayFormat.NPZ:
        with np.load(place / "file") as found:
            assert {name: found[name].tobytes() for name in found} == {
                name: one.tobytes() for name, one in values.items()
            }
    else:
        found = dict(safetensors.deserialize((place / "file").read_bytes()))
        assert {name: bytes(one["data"]) for name, one in found.items()} == {
            name: one.tobytes() for name, one in values.items()
        }
    write_checkpoint(place / "file", place / "d", by_name=True)
    entries = read_index(place / "d").entries
    assert {name: (one.dtype, list(one.shape)) for name, one in entries.items()} == made
    for name, entry in entries.items():
        assert read_tensor_bytes(place / "d", entry) == values[name].tobytes()
    assert verify(place / "d").findings == ()


def test_paths_become_objects(tmp_path):
    names = {"model/dense/kernel": 1.0, "model/dense/bias": 2.0, "step": 3.0, "a..b/c.Sd": 4.0,
             "layers.0.weight": 5.0}  # fmt: skip
    np.savez(tmp_path / "w.npz", **{name: np.float32(value) for name, value in names.items()})
    write_checkpoint(tmp_path / "w.npz", tmp_path / "c")
    nodes = read_object_graph(tmp_path / "c")
    assert sorted(nodes[0].children) == ["a.b", "layers.0.weight", "model", "step"]
    dense = nodes[nodes[nodes[0].children["model"]].children["dense"]]
    assert sorted(dense.children) == ["bias", "kernel"]
    assert nodes[dense.children["kernel"]].checkpoint_key == key_of("model/dense/kernel")
    assert list(nodes[nodes[0].children["a.b"]].children) == ["c/d"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_any_layout_are_converted(tmp_path, save):
    values = np.arange(24.0).reshape(2, 3, 4)
    save(tmp_path / "w.npz", columns=np.asfortranarray(values), big=values.astype(">f4"),
         empty=values[:0], scalar=np.int8(3))  # fmt: skip
    write_checkpoint(tmp_path / "w.npz", tmp_path / "c", by_name=True)
    entries = read_index(tmp_path / "c").entries
    read = {name: read_tensor_bytes(tmp_path / "c", entry) for name, entry in entries.items()}
    assert read == {
        "columns": values.tobytes(),
        "big": values.astype("<f4").tobytes(),
        "empty": b"",
        "scalar": b"\x03",
    }
    assert entries["columns"].shape == (2, 3, 4)


def test_a_file_of_the_safetensors_package_is_converted(tmp_path):
    tensors = {"a.weight": np.ones((2, 3), np.float16), "b": np.array(7, np.int64)}
    safetensors.numpy.save_file(tensors, tmp_path / "w", metadata={"format": "pt"})
    write_checkpoint(tmp_path / "w", tmp_path / "c", by_name=True)
    entries = read_index(tmp_path / "c").entries
    assert {name: (one.dtype, one.shape) for name, one in entries.items()} == {
        "a.weight": ("float16", (2, 3)),
        "b": ("int64", ()),
    }
    for name, entry in entries.items():
        assert read_tensor_bytes(tmp_path / "c", entry) == tensors[name].tobytes()


FLOAT = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither an npz, a safetensors nor a Keras file"),
        (b"\x01\x02", "neither an npz, a safetensors nor a Keras file"),
        (
            safetensors_file({}, length=1 << 60),
            "its header has 1152921504606846976 bytes, the file 10",
        ),
        (safetensors_file(b"[]"), "neither an npz, a safetensors nor a Keras file"),
        (safetensors_file(b"{\xff\xff"), "not a valid safetensors file"),
        (safetensors_file({"a": {"dtype": "F32"}}), "missing required field"),
        (safetensors_file(b'{"a":' * 9000), "it is nested too deeply"),
        (safetensors_file(b'{"a":' + b"[" * 9000 + b"]" * 9000 + b"}"), "it is nested too deeply"),
        (safetensors_file(b'{"a":{"shape":[' + b"9" * 5000 + b"]}}"), "out of range"),
        (safetensors_file({"a": FLOAT}), "it has 0 bytes of data; expected 4"),
        (safetensors_file({"a": FLOAT}, b"12345"), "it has 5 bytes of data; expected 4"),
        (
            safetensors_file({"a": FLOAT, "b": FLOAT}, b"1234"),
            "a tensor begins at byte 0; expected 4",
        ),
        (safetensors_file({"a": {**FLOAT, "shape": [2]}}, b"1234"), "a has 4 bytes; expected 8"),
        (safetensors_file({"a": {**FLOAT, "shape": [-1, -1]}}, b"1234"), "a has 4 bytes"),
        (safetensors_file({"a": {**FLOAT, "dtype": "F99"}}, b"1234"), "a has the type F99"),
    ],
)
def test_damaged_safetensors_files_are_refused(tmp_path, content, words):
    (tmp_path / "w").write_bytes(content)
    with pytest.raises((DamagedFileError, UsageError), match=words):
        write_checkpoint(tmp_path / "w", tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def npy(array: np.ndarray, **options: bool) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


ONE = npy(np.ones(3))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"a.npy": b"no array"}, "a cannot be read"),
        ({"a.npy": ONE[:-1]}, "a has 23 bytes; expected 24 for its shape"),
        ({"a.npy": ONE + b"1"}, "a has 25 bytes; expected 24 for its shape"),
        ({"a.npy": npy(np.array([{}], object), allow_pickle=True)}, "a has the type object"),
        ({"a.npy": npy(np.array(["x"]))}, "Leave texts out: with --like"),
        ({"a.npy": npy(np.zeros(1, "f4,i4"))}, "which cannot be converted; expected numbers"),
        ({"a.npy": ONE.replace(b"(3,)", b"(-3,)")[:-1]}, "a "),
    ],
)
def test_damaged_npz_files_are_refused(tmp_path, members, words):
    with zipfile.ZipFile(tmp_path / "w", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises((DamagedFileError, UsageError), match=words):
        write_checkpoint(tmp_path / "w", tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_damaged_member_leaves_no_checkpoint(tmp_path):
    np.savez(tmp_path / "w", a=np.arange(1000.0))
    content = bytearray((tmp_path / "w.npz").read_bytes())
    content[5000] ^= 1
    (tmp_path / "w.npz").write_bytes(content)
    with pytest.raises(DamagedFileError, match="a is damaged: Bad CRC-32"):
        write_checkpoint(tmp_path / "w.npz", tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["w.npz"]


@tries(200)
@given(content=st.binary(max_size=200), is_zip=st.booleans())
def test_garbage_leads_to_one_message(tmp_path_factory, content, is_zip):
    place = tmp_path_factory.mktemp("garbage")
    (place / "w").write_bytes((b"PK\x03\x04" if is_zip else b"") + content)
    tracemalloc.start()
    with pytest.raises((DamagedFileError, UsageError)):
        write_checkpoint(place / "w", place / "c")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    assert [path.name for path in place.iterdir()] == ["w"]


LARGE = """
import sys
from pathlib import Path
import numpy as np
from tfckpt_trainer.bundle.exchange.convert import write_arrays
from tfckpt_trainer.bundle.exchange.extract import ArrayFormat, extract_tensors
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter

root = Path(sys.argv[1])
chunk = np.ones(1 << 18, np.float32)
with BundleWriter(root / "c") as writer:
    writer.add("w", "float32", (1 << 8, 1 << 18), (chunk for _ in range(1 << 8)))
    writer.commit()
index = read_index(root / "c")
tensors = index.entries
for kind in (ArrayFormat.NPZ, ArrayFormat.SAFETENSORS):
    extract_tensors(root / "c", index, tensors, root / kind, kind)
    with BundleWriter(root / f"from-{kind}") as writer:
        write_arrays(writer, root / kind, by_name=True)
        writer.commit()
    (root / kind).unlink()
assert read_index(root / "from-npz").entries == read_index(root / "from-safetensors").entries
"""


@pytest.mark.e2e
def test_memory_does_not_depend_on_the_size_of_a_tensor(tmp_path):
    # The tensor has 256 MB.
    assert peak_memory(LARGE, tmp_path) < 100 << 20
    index = read_index(tmp_path / "c")
    assert read_index(tmp_path / "from-npz").entries == index.entries


@pytest.mark.parametrize(
    "read", [open_array_file, NpzReader, is_keras_archive, verify_array_file, Hdf5Reader]
)
def test_no_reader_waits_for_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    try:
        found = read(tmp_path / "pipe.npz")
    except DamagedFileError as error:
        problem = str(error)
    else:
        assert isinstance(found, FileResult)
        problem = found.problem
    assert "is not a regular file" in problem
