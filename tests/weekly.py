"""Cases of a test that run once a week."""

from __future__ import annotations

from typing import Any

import pytest


def weekly(*cases: Any) -> list[Any]:
    """Returns cases for `pytest.mark.parametrize` that repeat what the other cases show.

    Args:
        cases: Each is the value of the parameter, or a tuple of the values of several.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.weekly)
        for case in cases
    ]
