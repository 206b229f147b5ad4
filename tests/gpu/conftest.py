"""Tests that need a GPU are skipped without one that TensorFlow can use."""

from __future__ import annotations

import pytest

from requirements import require, tensorflow_gpus


@pytest.fixture(scope="session")
def gpus() -> int:
    """The number of GPUs that TensorFlow can use."""
    require("GPU")
    require("GPU of TensorFlow")
    return tensorflow_gpus()
