"""The figures of tensors, held against numpy on arrays of every type of numbers."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bundle_writing import NUMBERS, Parts, Stored, array, in_parts, rows, strings, write
from tfckpt_trainer.bundle.analysis import statistics as statistics_module
from tfckpt_trainer.bundle.analysis.statistics import BINS, Statistics, statistics
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.tensors import read_integer
from tfckpt_trainer.errors import BundleError
from weekly import tries

THREE_PIECES = 600_000
"""Elements that are handed out in three pieces."""


def figures_of(tensor: Stored | Parts, prefix: Path) -> Statistics:
    write(prefix, {"a": tensor})
    index = read_index(prefix)
    return statistics(prefix, index, index.entries["a"])


def hold_against_numpy(found: Statistics, values: np.ndarray) -> None:
    """Compares with what numpy says of the same values in double precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.abs(values.astype(np.complex128)) if np.iscomplexobj(values) else values
        wide = wide.astype(np.float64).ravel()
    finite = wide[np.isfinite(wide)]
    assert found.elements == len(wide)
    assert found.zeros == np.count_nonzero(finite == 0)
    assert found.nan == np.count_nonzero(np.isnan(wide))
    assert found.infinite == np.count_nonzero(np.isinf(wide))
    if not len(finite):
        assert (found.minimum, found.maximum, found.mean, found.deviation) == (None,) * 4
        assert (found.norm, found.histogram) == (0.0, None)
        return
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.abs(finite).max()
        # The square of a small number is 0.
        scaled = finite / scale if scale else finite
        mean, deviation = scaled.mean() * scale, scaled.std() * scale
        norm = np.sqrt(np.square(scaled).sum()) * scale
    if math.isfinite(norm):
        assert found.mean == pytest.approx(mean, rel=1e-9, abs=1e-12 * scale)
        # What is left of equal numbers is but rounding.
        assert found.deviation == pytest.approx(deviation, rel=1e-6, abs=1e-7 * scale)
        assert found.norm == pytest.approx(norm, rel=1e-9)
    if found.histogram is None:
        assert float(finite.max()) - float(finite.min()) in {0.0, math.inf}
    else:
        assert (found.histogram.low, found.histogram.high) == (finite.min(), finite.max())
        assert len(found.histogram.counts) == BINS
        assert sum(found.histogram.counts) == len(finite)
        assert found.histogram.counts[0] > 0
        assert found.histogram.counts[-1] > 0


@tries(150)
@given(dtype=st.sampled_from(sorted(NUMBERS)), data=st.data())
def test_they_are_those_of_numpy_whatever_the_bits(
    tmp_path_factory, dtype: str, data: st.DataObject
) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    raw = data.draw(st.binary(max_size=8 * kind.itemsize))
    values = np.frombuffer(raw[: len(raw) - len(raw) % kind.itemsize], kind)
    if dtype == "bool":
        values = np.frombuffer(raw, np.uint8) % 2 == 1
    found = figures_of(array(values), tmp_path_factory.mktemp("any") / "ckpt-1")
    hold_against_numpy(found, values)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int16", "complex64"])
@pytest.mark.parametrize("offset", [0, 1000])
def test_they_are_right_over_several_pieces(tmp_path: Path, dtype: str, offset: int) -> None:
    random = np.random.default_rng(1)
    values = (random.standard_normal(THREE_PIECES) * 7 + offset).astype(
        np.dtype(getattr(ml_dtypes, dtype, dtype))
    )
    if dtype.startswith("float"):
        values[[5, THREE_PIECES - 1]] = np.nan, np.inf
    found = figures_of(array(values), tmp_path / "ckpt-1")
    hold_against_numpy(found, values)


def test_the_histogram_is_that_of_numpy(tmp_path: Path) -> None:
    values = np.random.default_rng(2).standard_normal(THREE_PIECES)
    found = figures_of(array(values), tmp_path / "ckpt-1").histogram
    assert found is not None
    assert found.counts == tuple(np.histogram(values, BINS)[0])


@pytest.mark.parametrize(
    "values",
    [
        [1.0, math.nextafter(1.0, 2.0)],
        [1e16, 1e16 + 2],
        [0.0, 5e-324],
        [-1e308, 1e308],
        [1e308] * 3,
        [-0.0, 0.0],
        [7.0],
    ],
)
def test_ranges_too_narrow_or_too_wide_for_bins(tmp_path: Path, values: list[float]) -> None:
    hold_against_numpy(figures_of(array(np.array(values)), tmp_path / "ckpt-1"), np.array(values))


def test_those_of_parts_are_those_of_the_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(3).standard_normal((300, 40)).astype(np.float32)
    boxes = [((row, 150), (column, 20)) for row in (0, 150) for column in (0, 20)]
    for cut in (boxes, rows(300, 40, 1, 200, 99)):
        hold_against_numpy(figures_of(in_parts(values, cut), tmp_path / "ckpt-1"), values)


def test_what_is_no_number_has_no_figures(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="a is string; expected a numeric type"):
        figures_of(strings([b"one"]), tmp_path / "ckpt-1")


DOUBLES = st.floats(allow_nan=False, allow_infinity=False)


@tries(200)
@given(st.lists(st.lists(DOUBLES, max_size=4), min_size=1, max_size=3))
@example([[0.0], [4.3e-209]])
@example([[4.3e-209], [0.0, 1e300]])
def test_norm_and_deviation_are_those_of_exact_numbers(chunks: list[list[float]]) -> None:
    """Whatever their squares are: too large for a double, or too small."""
    moments = statistics_module._Moments()
    for chunk in chunks:
        moments.add(np.array(chunk))
    found, exact = moments.result(None), [Fraction(one) for chunk in chunks for one in chunk]
    largest = max((abs(one) for one in exact), default=Fraction())
    assert found.norm == pytest.approx(_root(sum(one**2 for one in exact)), rel=1e-9, abs=0)
    if not exact:
        return
    mean = sum(exact) / len(exact)
    deviation = _root(sum((one - mean) ** 2 for one in exact) / len(exact))
    rounding = float(largest) * 1e-12
    assert found.mean == pytest.approx(float(mean), rel=1e-9, abs=rounding)
    assert found.deviation == pytest.approx(deviation, rel=1e-6, abs=float(largest) * 1e-7)


def _root(square: Fraction | int) -> float:
    """The root of an exact number, as a double; infinite if it is too large for one."""
    if not square:
        return 0.0
    with localcontext() as context:
        context.prec = 40
        number = Fraction(square)
        root = (Decimal(number.numerator) / Decimal(number.denominator)).sqrt()
    return float(root)


def test_a_large_double_is_no_obstacle(tmp_path: Path) -> None:
    found = figures_of(array(np.array([1e300, 2.0])), tmp_path / "ckpt-1")
    assert (found.norm, found.deviation, found.infinite) == (1e300, 5e299, 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values",
    [
        np.array([0x7F800001, 0xFFA00000], np.uint32).view(np.float32),
        np.array([1.7e308 + 1.7e308j, complex(math.nan, 1)]),
        np.array([-1.7e308, 1.7e308, math.nan]),
    ],
)
def test_no_value_makes_numpy_warn(tmp_path: Path, values: np.ndarray) -> None:
    found = figures_of(array(values), tmp_path / "ckpt-1")
    assert found.nan + found.infinite > 0


@pytest.mark.parametrize("damage", ["cut", "part"])
def test_elements_that_are_not_there_are_one_typed_error(tmp_path: Path, damage: str) -> None:
    prefix = tmp_path / "ckpt-1"
    values = np.zeros((4, 4), np.float32)
    tensor = in_parts(values, rows(4, 4, 2, 2))
    if damage == "part":
        del tensor.parts[(2, 2), (0, 4)]
        tensor.listed = rows(4, 4, 2, 2)
    else:
        tensor.parts[(0, 2), (0, 4)].offset = 1 << 30
    with pytest.raises(BundleError):
        figures_of(tensor, prefix)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.int64(-(1 << 62)), -(1 << 62)),
        (np.uint64((1 << 64) - 1), (1 << 64) - 1),
        (np.uint8(200), 200),
        (np.int32(-1), -1),
        (np.float32(1.0), None),
        (np.zeros(1, np.int64), None),
    ],
)
def test_a_counter_is_read_exactly(tmp_path: Path, values: np.ndarray, expected) -> None:
    write(tmp_path / "ckpt-1", {"a": array(values)})
    entry = read_index(tmp_path / "ckpt-1").entries["a"]
    assert read_integer(tmp_path / "ckpt-1", entry) == expected


def test_a_counter_of_another_size_is_none(tmp_path: Path) -> None:
    write(tmp_path / "ckpt-1", {"a": Stored(9, (), [b"\1" * 4096])})
    entry = read_index(tmp_path / "ckpt-1").entries["a"]
    assert read_integer(tmp_path / "ckpt-1", entry) is None


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bfloat16", "float32", "complex64"])
def test_progress_adds_up_to_the_size(tmp_path, dtype):
    values = np.arange(700_000).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    write(tmp_path / "c", {"a": array(values)})
    index = read_index(tmp_path / "c")
    seen: list[int] = []
    statistics(tmp_path / "c", index, index.entries["a"], seen.append)
    assert len(seen) > 2
    assert sum(seen) == values.nbytes


@pytest.mark.parametrize(("dtype", "kinds"), [(np.int8, 1 << 8), (np.uint16, 1 << 16)])
def test_small_types_are_read_once_and_computed_once_for_each_value(
    tmp_path, monkeypatch, dtype, kinds
):
    """Billions of quantized weights would take minutes in double precision."""
    values = np.arange(5_000_000).astype(dtype)
    write(tmp_path / "c", {"a": array(values)})
    index = read_index(tmp_path / "c")
    read: list[int] = []
    binned: list[int] = []

    def bins(numbers, low, high, real=statistics_module._bins):
        binned.append(len(numbers))
        return real(numbers, low, high)

    monkeypatch.setattr(Shard, "read", counting(Shard.read, read))
    monkeypatch.setattr(statistics_module, "_bins", bins)
    # These are the elements in double precision.
    monkeypatch.setattr(statistics_module, "to_double", None)
    found = statistics(tmp_path / "c", index, index.entries["a"])
    assert found is not None
    assert found.elements == len(values)
    assert sum(read) == values.nbytes
    assert sum(binned) <= kinds


def counting(read, sizes):
    """A method that notes how many bytes it is asked for."""

    def counted(self, offset, size):
        sizes.append(size)
        return read(self, offset, size)

    return counted
