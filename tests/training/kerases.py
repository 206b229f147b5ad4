"""The two Kerases of TensorFlow, for tests that hold for both."""

from __future__ import annotations

import pytest

KERAS_3 = "keras"
KERAS_2 = pytest.param("tf_keras", marks=pytest.mark.needs("tf_keras"))


def environment_of(keras: str) -> dict[str, str]:
    """What has TensorFlow use a Keras: it is read when TensorFlow first looks for one."""
    return {"TF_USE_LEGACY_KERAS": str(int(keras == "tf_keras"))}
