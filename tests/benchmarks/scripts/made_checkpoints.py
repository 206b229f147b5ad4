"""Writes large checkpoints quickly, without TensorFlow; run as a script it verifies one with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import numpy as np

from bundle_writing import NUMBERS, Stored, write

_PIECE = 1 << 18


def make(prefix: Path, tensors: int, size: int, seed: int = 0) -> int:
    """Writes `tensors` float tensors of `size` bytes in all; returns the bytes of its files."""
    elements = size // tensors // 4
    made = {
        f"layer_{number:05d}/kernel/.ATTRIBUTES/VARIABLE_VALUE": Stored(
            NUMBERS["float32"], (elements,), _random(elements, seed + number)
        )
        for number in range(tensors)
    }
    return sum(path.stat().st_size for path in write(prefix, made))


def _random(elements: int, seed: int) -> Iterator[bytes]:
    random = np.random.default_rng(seed)
    while elements > 0:
        count = min(_PIECE, elements)
        yield random.standard_normal(count, np.float32).tobytes()
        elements -= count


def read_with_tensorflow(prefix: str) -> None:
    """Prints the seconds of importing TensorFlow, and those of reading every tensor."""
    began = time.perf_counter()
    import tensorflow as tf

    imported = time.perf_counter()
    reader = tf.train.load_checkpoint(prefix)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)
    print(imported - began, time.perf_counter() - imported)


if __name__ == "__main__":
    read_with_tensorflow(sys.argv[1])
