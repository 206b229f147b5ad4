"""Casts between element types: integers against exact ones of Python."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, numpy_dtype
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.tools.tensors.casting import can_be_cast, cast_chunks
from weekly import tries

INTEGERS = sorted(name for name in ITEM_SIZES if name.startswith(("int", "uint")))


def limits(dtype: str) -> tuple[int, int]:
    """The smallest and the largest number of a type, from its name."""
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def stored(values: list[int], dtype: str) -> np.ndarray:
    """Elements from exact integers, whatever NumPy thinks of their common type."""
    wide = np.uint64 if dtype.startswith("u") else np.int64
    return np.array(values, wide).astype(numpy_dtype(dtype))


def cast(chunk: np.ndarray, dtype: str) -> list[np.ndarray]:
    return list(cast_chunks("a", iter([chunk]), dtype, lambda size: None, lambda count: None))


def exact(chunk: np.ndarray) -> list[int]:
    wide = np.uint64 if chunk.dtype.name.startswith("u") else np.int64
    return [int(one) for one in chunk.astype(wide)]


def check(values: list[int], old: str, new: str) -> None:
    chunk = stored(values, old)
    assert exact(chunk) == values
    smallest, largest = limits(new)
    if all(smallest <= one <= largest for one in values):
        (result,) = cast(chunk, new)
        assert (exact(result), result.dtype) == (values, numpy_dtype(new))
    else:
        with pytest.raises(RefusedError, match=f"a has values that do not fit into {new}"):
            cast(chunk, new)


@pytest.mark.parametrize("old", INTEGERS)
def test_limits_of_every_type_are_kept_or_refused_by_every_other(old: str) -> None:
    low, high = limits(old)
    for new in INTEGERS:
        check([], old, new)
        for edge in (*limits(new), low, high, 0):
            for value in (edge - 1, edge, edge + 1):
                if low <= value <= high:
                    check([value], old, new)


@tries(300)
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.data())
def test_an_integer_keeps_its_value_or_is_refused(old: str, new: str, data: st.DataObject) -> None:
    check(data.draw(st.lists(st.integers(*limits(old)), max_size=4)), old, new)


def test_only_real_numbers_and_integers_are_cast_to_each_other() -> None:
    real = [name for name in ITEM_SIZES if name.startswith(("float", "bfloat"))]
    for old, new in product(ITEM_SIZES, repeat=2):
        allowed = any(old in kind and new in kind for kind in (INTEGERS, real))
        assert can_be_cast(old, new) == allowed
