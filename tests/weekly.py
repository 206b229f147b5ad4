"""Cases and examples of a test that run once a week."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings


def weekly(*cases: Any) -> list[Any]:
    """Returns cases for `pytest.mark.parametrize` that repeat what the other cases show.

    Args:
        cases: Each is the value of the parameter, or a tuple of the values of several.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.weekly)
        for case in cases
    ]


def tries(full: int) -> settings:
    """Returns settings of a property: the number of examples that it tries once a week.

    The other runs try as many as their profile says, at most, and the same each time
    (`tests/conftest.py`).
    """
    usual = settings.default
    return settings(max_examples=min(full, usual.max_examples) if usual.derandomize else full)
