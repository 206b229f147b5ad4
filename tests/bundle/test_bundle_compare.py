"""What changed between two checkpoints, and by how much: held against numpy."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundle_writing import Parts, Stored, array, in_parts, rows, strings, write
from tfckpt_trainer.bundle.analysis.compare import (
    TensorChange,
    TensorComparison,
    TensorDifference,
    compare,
    measure_change,
)
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.errors import BundleError
from weekly import tries

MATRIX = np.arange(24, dtype=np.float32).reshape(6, 4)
Tensors = dict[str, Stored | Parts]


def compared(root: Path, before: Tensors, after: Tensors) -> dict[str, TensorComparison]:
    write(root / "a", before)
    write(root / "b", after)
    return {one.name: one for one in compare(read_index(root / "a"), read_index(root / "b"))}


def changed(root: Path, before: Stored | Parts, after: Stored | Parts) -> TensorChange | None:
    one = compared(root, {"t": before}, {"t": after})["t"]
    indexes = read_index(root / "a"), read_index(root / "b")
    return measure_change((root / "a", root / "b"), indexes, one)


def test_every_way_in_which_a_tensor_can_differ(tmp_path: Path) -> None:
    before: Tensors = {
        "removed": array(MATRIX),
        "shape": array(MATRIX),
        "dtype": array(MATRIX),
        "changed": array(MATRIX),
        "equal": array(MATRIX),
        "text": strings([b"a"]),
    }
    after: Tensors = {
        "equal": array(MATRIX),
        "text": strings([b"b"]),
        "changed": array(MATRIX * 2),
        "dtype": array(MATRIX.astype(np.int32)),
        "shape": array(MATRIX.T.copy()),
        "added": array(MATRIX),
    }
    found = compared(tmp_path, before, after)
    assert list(found) == sorted(before.keys() | after.keys())
    assert {name: one.difference for name, one in found.items()} == {
        "removed": TensorDifference.REMOVED,
        "shape": TensorDifference.SHAPE,
        "dtype": TensorDifference.DTYPE,
        "changed": TensorDifference.CHANGED,
        "equal": TensorDifference.EQUAL,
        "text": TensorDifference.CHANGED,
        "added": TensorDifference.ADDED,
    }
    assert found["added"].before is None
    assert found["removed"].after is None
    assert not any(one.unknown for one in found.values())


def test_the_indexes_alone_say_it(tmp_path: Path) -> None:
    write(tmp_path / "a", {"t": array(MATRIX)})
    write(tmp_path / "b", {"t": array(MATRIX * 2)})
    for path in tmp_path.glob("*.data*"):
        path.unlink()
    (one,) = compare(read_index(tmp_path / "a"), read_index(tmp_path / "b"))
    assert one.difference is TensorDifference.CHANGED


def test_in_the_same_parts_the_checksums_tell(tmp_path: Path) -> None:
    cut = rows(6, 4, 2, 4)
    other = MATRIX.copy()
    other[5, 3] += 1
    before: Tensors = {"same": in_parts(MATRIX, cut), "one": in_parts(MATRIX, cut)}
    after: Tensors = {"same": in_parts(MATRIX, cut), "one": in_parts(other, cut)}
    found = compared(tmp_path, before, after)
    assert found["same"].difference is TensorDifference.EQUAL
    assert found["one"].difference is TensorDifference.CHANGED
    assert not found["one"].unknown


@pytest.mark.parametrize("turned", [False, True])
def test_rows_in_other_parts_are_compared_by_the_checksum_of_the_whole(
    tmp_path: Path, turned: bool
) -> None:
    sides = [in_parts(MATRIX, rows(6, 4, 2, 4)), array(MATRIX * 3)]
    before, after = reversed(sides) if turned else sides
    one = compared(tmp_path, {"t": before}, {"t": after})["t"]
    assert (one.difference, one.unknown) == (TensorDifference.CHANGED, False)
    cuts = [rows(6, 4, 1, 5), rows(6, 4, 3, 3)[::-1]]
    one = compared(tmp_path, *({"t": in_parts(MATRIX, cut)} for cut in cuts))["t"]
    assert (one.difference, one.unknown) == (TensorDifference.EQUAL, False)
    found = changed(tmp_path, before, after)
    assert found is not None
    norms = [float(np.linalg.norm(MATRIX)), float(np.linalg.norm(MATRIX * 3))]
    assert [found.norm_before, found.norm_after] == pytest.approx(norms[::-1] if turned else norms)
    assert found.distance == pytest.approx(np.linalg.norm(MATRIX * 2))
    same = changed(tmp_path, in_parts(MATRIX, rows(6, 4, 1, 5)), in_parts(MATRIX, rows(6, 4, 3, 3)))
    assert same is not None
    assert (same.distance, same.relative) == (0.0, 0.0)


def test_parts_that_are_no_rows_are_compared_with_the_same_ones_only(tmp_path: Path) -> None:
    columns = [((0, 6), (0, 1)), ((0, 6), (1, 3))]
    found = changed(tmp_path, in_parts(MATRIX, columns), in_parts(MATRIX + 1, columns))
    assert found is not None
    assert found.distance == pytest.approx(math.sqrt(24))
    assert changed(tmp_path, in_parts(MATRIX, columns), array(MATRIX)) is None
    one = compared(tmp_path, {"t": in_parts(MATRIX, columns)}, {"t": array(MATRIX)})["t"]
    assert (one.difference, one.unknown) == (TensorDifference.CHANGED, True)


NUMERIC = ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64", "complex64"]
NUMERIC += ["float8_e5m2", "int4", "bool"]


@tries(100)
@given(dtype=st.sampled_from(NUMERIC), data=st.data())
def test_the_change_is_that_of_numpy(tmp_path_factory, dtype: str, data: st.DataObject) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    numbers = st.lists(st.integers(-8, 7), min_size=4, max_size=4)
    one, two = (np.array(data.draw(numbers)).astype(kind) for _ in "ab")
    found = changed(tmp_path_factory.mktemp("any"), array(one), array(two))
    wide = np.complex128 if np.iscomplexobj(one) else np.float64
    one, two = one.astype(wide), two.astype(wide)
    assert found is not None
    assert found.norm_before == pytest.approx(np.linalg.norm(one))
    assert found.norm_after == pytest.approx(np.linalg.norm(two))
    assert found.distance == pytest.approx(np.linalg.norm(two - one))
    if np.linalg.norm(one):
        expected = np.linalg.norm(two - one) / np.linalg.norm(one)
        assert found.relative == pytest.approx(expected)


@pytest.mark.parametrize(("after", "relative"), [([0.0, 0.0], 0.0), ([0.0, 1.0], math.inf)])
def test_what_was_zero_before(tmp_path: Path, after: list[float], relative: float) -> None:
    found = changed(tmp_path, array(np.zeros(2)), array(np.array(after)))
    assert found is not None
    assert found.relative == relative


def test_what_is_not_finite_on_a_side_is_left_out(tmp_path: Path) -> None:
    one = np.array([3.0, np.nan, 4.0, np.inf, 1.0])
    two = np.array([3.0, 2.0, 5.0, np.inf, -np.inf])
    found = changed(tmp_path, array(one), array(two))
    assert found is not None
    assert (found.norm_before, found.distance, found.not_finite) == (5.0, 1.0, 3)


@pytest.mark.filterwarnings("error")
def test_numbers_too_large_to_be_squared_are_compared(tmp_path: Path) -> None:
    found = changed(tmp_path, array(np.array([1e300, 1.0])), array(np.array([-1e300, 2.0])))
    assert found is not None
    assert (found.norm_before, found.norm_after) == (1e300, 1e300)
    assert (found.distance, found.relative) == (2e300, 2.0)
    found = changed(tmp_path, array(np.array([1.7e308])), array(np.array([-1.7e308])))
    assert found is not None
    assert math.isinf(found.distance)


def test_large_tensors_are_compared_piece_by_piece(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    one = random.standard_normal((1000, 700)).astype(np.float32)
    two = one + random.standard_normal((1000, 700)).astype(np.float32) / 100
    found = changed(tmp_path, array(one), in_parts(two, rows(1000, 700, 1, 333, 666)))
    assert found is not None
    wide = [values.astype(np.float64) for values in (one, two)]
    assert found.distance == pytest.approx(np.linalg.norm(wide[1] - wide[0]))
    assert found.norm_after == pytest.approx(np.linalg.norm(wide[1]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (strings([b"a"]), strings([b"b"])),
        (array(MATRIX), array(MATRIX.T.copy())),
        (array(MATRIX), strings([b"x"] * 24, (6, 4))),
    ],
)
def test_what_cannot_be_subtracted_has_no_change(
    tmp_path: Path, before: Stored, after: Stored
) -> None:
    assert changed(tmp_path, before, after) is None


def test_a_side_that_is_missing_has_no_change(tmp_path: Path) -> None:
    one = compared(tmp_path, {"t": array(MATRIX)}, {"u": array(MATRIX)})["t"]
    indexes = read_index(tmp_path / "a"), read_index(tmp_path / "b")
    assert measure_change((tmp_path / "a", tmp_path / "b"), indexes, one) is None


def test_what_is_not_where_it_should_be_is_one_typed_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        changed(tmp_path, array(MATRIX), Stored(1, (6, 4), [], offset=1 << 30, size=96, crc=1))
    crooked = Parts(1, (6, 4), {((0, 6),): Stored(1, (6,), [b"\0" * 24])})
    assert changed(tmp_path, array(MATRIX), crooked) is None
