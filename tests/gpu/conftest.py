"""Tests that need a GPU are skipped without one that TensorFlow can use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tfckpt_trainer.cluster.gpu_shares import visible_gpus

LIST = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"


@pytest.fixture(scope="session")
def gpus() -> int:
    """The number of GPUs that TensorFlow can use."""
    # In WSL2 there are no device files, but the tool.
    if not visible_gpus(os.environ).names and not shutil.which("nvidia-smi"):
        pytest.skip("this machine has no GPU")
    listed = subprocess.run(
        [sys.executable, "-c", LIST], capture_output=True, text=True, timeout=300, check=True
    )
    count = int(listed.stdout.split()[-1])
    if not count:
        pytest.skip("TensorFlow lists no GPU; `pip install 'tensorflow[and-cuda]'`")
    return count
