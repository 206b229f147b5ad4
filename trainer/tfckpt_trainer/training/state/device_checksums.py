"""Checksums of large values, computed on the GPUs that hold them: no value is copied.

A value is read as words of 16 or 32 bits. The checksum of a piece is the sum of its words, each
times an odd random number of its position, modulo 2**64. Integers wrap, so the order in which a
GPU adds makes no difference: equal bits have equal checksums on all devices of all workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.training.state.variables import byte_size, components, raw_variable

DEVICE_TYPE = "GPU"
"""Devices with memory of their own, on which all operations below have a kernel."""

SMALLEST_BYTES = 1 << 20
"""A smaller value is copied to main memory in less time than the operations take to start."""

_PIECE_WORDS = 1 << 21
"""Words of a piece. A device needs up to 28 bytes of memory for each of them, about 60 MB."""

_WORDS = {
    tf.bfloat16: tf.uint16,
    tf.float16: tf.uint16,
    tf.float32: tf.uint32,
    tf.float64: tf.uint32,
    tf.int64: tf.uint32,
}
"""How values are read as words. TensorFlow keeps some of the other types in main memory."""


class DeviceChecksums:
    """Computes checksums on GPUs; keeps what they multiply with until it is deleted."""

    def __init__(self) -> None:
        self._factors: dict[str, tf.Tensor] = {}

    def start(self, variable: Any) -> list[tf.Tensor] | None:
        """Starts the checksum of a variable on each replica of this worker.

        Returns:
            What `result_of` takes, for each replica; the devices may still compute it. None if
            the value is small, not on GPUs alone, of a type that is not supported, or if a GPU
            has too little memory left.
        """
        parts = components(variable)
        if not all(f":{DEVICE_TYPE}:" in part.device for part in parts):
            return None
        if byte_size(variable) < SMALLEST_BYTES or raw_variable(variable).dtype not in _WORDS:
            return None
        try:
            return [self._sums(part) for part in parts]
        except tf.errors.ResourceExhaustedError:
            return None

    def are_equal(self, variable: Any) -> bool:
        """Whether the replicas of this worker have equal checksums; False if they have none."""
        sums = self.start(variable) if len(components(variable)) > 1 else None
        return sums is not None and len({result_of(one) for one in sums}) == 1

    def _sums(self, variable: Any) -> tf.Tensor:
        """Returns the sum of each piece of a value, on the device of the variable."""
        word = _WORDS[variable.dtype]
        length = _PIECE_WORDS * word.size // variable.dtype.size
        with tf.device(variable.device):
            values = tf.reshape(variable.read_value(), [-1])
            sums = []
            for begin in range(0, int(values.shape[0]), length):
                piece = tf.slice(values, [begin], [min(length, int(values.shape[0]) - begin)])
                words = tf.reshape(tf.cast(tf.bitcast(piece, word), tf.int64), [-1])
                factors = tf.slice(self._factors_on(variable.device), [0], [int(words.shape[0])])
                sums.append(tf.reduce_sum(words * factors))
            return tf.stack(sums)

    def _factors_on(self, device: str) -> tf.Tensor:
        if device not in self._factors:
            # Of a generator whose numbers are the same in all versions of NumPy.
            numbers = np.random.PCG64(0).random_raw(_PIECE_WORDS) | np.uint64(1)
            self._factors[device] = tf.constant(numbers.view(np.int64))
        return self._factors[device]


def result_of(sums: tf.Tensor) -> int:
    """Waits for the device, and returns the checksum."""
    return crc32c(sums.numpy().tobytes())
