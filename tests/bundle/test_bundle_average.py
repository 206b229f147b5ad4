"""Averages of checkpoints: against NumPy, tensor by tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bundle_writing import NUMBERS, array, in_parts, peak_memory, rows, strings, write
from tfckpt_trainer.bundle.dtypes import numpy_dtype
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.tensors import read_strings, read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.errors import BundleError
from tfckpt_trainer.tools.tensors.average import (
    WeightedCheckpoint,
    find_differences,
    write_average,
)

INEXACT = sorted(n for n in NUMBERS if n.startswith(("float", "bfloat", "complex")))
WEIGHTS = (0.25, 0.125, 0.625)


def sources(root: Path, weights: tuple[float, ...] = WEIGHTS) -> list[WeightedCheckpoint]:
    return [
        WeightedCheckpoint(root / f"c{n}", read_index(root / f"c{n}"), weight)
        for n, weight in enumerate(weights)
    ]


def averaged(root: Path, weights: tuple[float, ...] = WEIGHTS) -> Path:
    with BundleWriter(root / "mean") as writer:
        write_average(writer, sources(root, weights))
        writer.commit()
    assert verify(root / "mean").findings == ()
    return root / "mean"


def values_in(prefix: Path, name: str) -> np.ndarray:
    entry = read_index(prefix).entries[name]
    data = read_tensor_bytes(prefix, entry)
    return np.frombuffer(data, numpy_dtype(entry.dtype)).reshape(entry.shape)


@pytest.mark.parametrize("dtype", INEXACT)
def test_every_inexact_type_has_the_mean_that_numpy_computes(tmp_path, dtype):
    kind, random = numpy_dtype(dtype), np.random.default_rng(0)
    stored = [(random.random((5, 7)) * 2).astype(kind) for _ in WEIGHTS]
    for n, values in enumerate(stored):
        write(tmp_path / f"c{n}", {"a": array(values), "s": array(values[0, 0])})
    prefix = averaged(tmp_path)
    wide = np.complex128 if kind.kind == "c" else np.float64
    pairs = list(zip(WEIGHTS, stored, strict=True))
    expected = sum(weight * values.astype(wide) for weight, values in pairs)
    assert values_in(prefix, "a").tobytes() == expected.astype(kind).tobytes()
    assert values_in(prefix, "s").tobytes() == expected[0, 0].astype(kind).tobytes()


def test_float32_is_summed_in_double_precision(tmp_path):
    for n, value in enumerate([1e8, 1.0, -1e8]):
        write(tmp_path / f"c{n}", {"a": array(np.float32(value))})
    assert values_in(averaged(tmp_path, (0.25, 0.5, 0.25)), "a") == np.float32(0.5)


def test_all_other_types_are_those_of_the_newest(tmp_path):
    exact = sorted(set(NUMBERS) - set(INEXACT))
    for n in range(3):
        tensors = {dtype: array(np.array([n % 2, 1]).astype(numpy_dtype(dtype))) for dtype in exact}
        texts = strings([b"x" * n, b"y"])
        write(tmp_path / f"c{n}", {**tensors, "text": texts, f"only-{n}": strings([b"z"])})
    prefix = averaged(tmp_path)
    for dtype in exact:
        assert values_in(prefix, dtype).tobytes() == values_in(tmp_path / "c2", dtype).tobytes()
    entries = read_index(prefix).entries
    assert read_strings(prefix, entries["text"]) == [b"xx", b"y"]
    assert "only-2" in entries
    assert "only-0" not in entries


def test_a_value_that_never_changed_stays_as_it_is(tmp_path):
    value = np.array([0.1, np.pi, 1e-300])
    for n in range(3):
        write(tmp_path / f"c{n}", {"rate": array(value)})
    prefix = averaged(tmp_path, (1 / 3, 1 / 3, 1 / 3))
    assert values_in(prefix, "rate").tobytes() == value.tobytes()


def test_values_that_are_not_finite_stay_so(tmp_path):
    for n, value in enumerate([np.inf, 1.0, 2.0]):
        write(tmp_path / f"c{n}", {"a": array(np.array([value, np.nan, 60000.0], np.float16))})
    prefix = averaged(tmp_path, (1.0, 1.0, 1.0))
    assert [str(one) for one in values_in(prefix, "a")] == ["inf", "nan", "inf"]


def test_parts_and_whole_tensors_are_averaged_with_each_other(tmp_path):
    stored = [np.random.default_rng(n).random((6, 4)).astype(np.float32) for n in range(3)]
    write(tmp_path / "c0", {"a": array(stored[0])})
    write(tmp_path / "c1", {"a": in_parts(stored[1], rows(6, 4, 1, 2, 3))})
    write(tmp_path / "c2", {"a": in_parts(stored[2], [((0, 6), (0, 1)), ((0, 6), (1, 3))])})
    pairs = zip(WEIGHTS, stored, strict=True)
    expected = sum(weight * values.astype(np.float64) for weight, values in pairs)
    found = values_in(averaged(tmp_path), "a")
    assert found.tobytes() == expected.astype(np.float32).tobytes()


def test_an_empty_tensor_is_averaged(tmp_path):
    for n in range(3):
        write(tmp_path / f"c{n}", {"a": array(np.zeros((0, 3), np.float32))})
    assert values_in(averaged(tmp_path), "a").shape == (0, 3)


def test_damage_in_one_source_is_reported_and_nothing_is_left(tmp_path):
    for n in range(3):
        write(tmp_path / f"c{n}", {"a": array(np.full(9, n, np.float32))})
    data = tmp_path / "c1.data-00000-of-00001"
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    with pytest.raises(BundleError, match="a does not match its checksum"):
        averaged(tmp_path)
    assert not list(tmp_path.glob("mean*"))


def test_differences_are_named(tmp_path):
    write(tmp_path / "c0", {"a": array(np.zeros(3, np.float32)), "b": array([1.0])})
    write(tmp_path / "c1", {"a": array(np.zeros(3, np.float64)), "c": array([1])})
    assert find_differences(sources(tmp_path, (0.5, 0.5))) == [
        "a: float32 3 in c0, float64 3 in c1",
        "b: float64 1 in c0, missing in c1",
        "c: missing in c0, int64 1 in c1",
    ]


LARGE = """
import sys
from pathlib import Path
import numpy as np
from tfckpt_trainer.tools.tensors.average import WeightedCheckpoint, write_average
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter

root = Path(sys.argv[1])
for n in range(4):
    with BundleWriter(root / f"c{n}") as writer:
        chunk = np.full(1 << 18, n, np.float32)
        writer.add("w", "float32", (1 << 25,), (chunk for _ in range(128)))
        writer.commit()
with BundleWriter(root / "mean") as writer:
    found = [root / f"c{n}" for n in range(4)]
    write_average(writer, [WeightedCheckpoint(one, read_index(one), 0.25) for one in found])
    writer.commit()
"""


@pytest.mark.e2e
def test_memory_does_not_depend_on_the_size_of_a_tensor(tmp_path):
    assert peak_memory(LARGE, tmp_path) < 150 << 20
    assert values_in(tmp_path / "mean", "w")[-1] == 1.5
