"""Checksums of large values, computed on the GPUs that hold them: no value is copied.

A value is read as words of 16 or 32 bits. The checksum of a piece is the sum of its words, each
times an odd random number of its position, modulo 2**64. Integers wrap, so the order in which a
GPU adds makes no difference: equal bits have equal checksums on all devices of all workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.training.state.variables import HOST, byte_size, components, raw_variable

DEVICE_TYPE = "GPU"
"""Devices with memory of their own, on which all operations below have a kernel."""

SMALLEST_BYTES = 1 << 20
"""A smaller value is copied to main memory in less time than the operations take to start."""

_MOST_ELEMENTS = 1 << 30
"""The loop over the pieces counts in 32 bits: GPUs leave counters of 32 bits in main memory."""

_PIECE_WORDS = 1 << 21
"""Words of a piece. A device needs up to 28 bytes of memory for each of them, about 60 MB."""

_MULTIPLIER = 6364136223846793005
"""Makes the order of the pieces count; odd, so that no bit is lost."""

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
            the value is small or huge, not on GPUs alone, or of a type that is not supported.
        """
        parts = components(variable)
        if not all(f":{DEVICE_TYPE}:" in part.device for part in parts):
            return None
        raw = raw_variable(variable)
        if byte_size(raw) < SMALLEST_BYTES or raw.dtype not in _WORDS:
            return None
        if raw.shape.num_elements() > _MOST_ELEMENTS:
            return None
        return [self._start(part) for part in parts]

    def are_equal(self, variable: Any) -> bool:
        """Whether the replicas of this worker have equal checksums; False if they have none."""
        started = self.start(variable) if len(components(variable)) > 1 else None
        return started is not None and len(set(map(result_of, started))) == 1

    def _start(self, variable: Any) -> tf.Tensor:
        try:
            return self._start_on(variable.device, variable)
        except tf.errors.ResourceExhaustedError:
            # Other workers, whose devices have memory left, compare with this checksum.
            return self._start_on(HOST, variable)

    def _start_on(self, device: str, variable: Any) -> tf.Tensor:
        with tf.device(device):
            values = tf.reshape(variable.read_value(), [-1])
            return _COMPUTE[variable.dtype](values, self._factors_on(device))

    def _factors_on(self, device: str) -> tf.Tensor:
        if device not in self._factors:
            # Of a generator whose numbers are the same in all versions of NumPy.
            numbers = np.random.PCG64(0).random_raw(_PIECE_WORDS) | np.uint64(1)
            self._factors[device] = tf.constant(numbers.view(np.int64))
        return self._factors[device]


def result_of(started: tf.Tensor) -> int:
    """Waits for the device, and returns the checksum."""
    return int(started.numpy()) & ((1 << 63) - 1)


def _computation(kind: tf.DType) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns a function that computes the checksum of a vector of a type."""
    word = _WORDS[kind]

    def compute(values: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
        count = tf.size(values)
        length = _PIECE_WORDS * word.size // kind.size

        def add_piece(begin: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            piece = tf.slice(values, [begin], [tf.minimum(length, count - begin)])
            words = tf.reshape(tf.cast(tf.bitcast(piece, word), tf.int64), [-1])
            added = tf.reduce_sum(words * tf.slice(factors, [0], tf.shape(words)))
            return begin + length, total * _MULTIPLIER + added

        _, total = tf.while_loop(
            lambda begin, _: begin < count,
            add_piece,
            (0, tf.constant(0, tf.int64)),
            # Two pieces at a time would need twice the memory.
            parallel_iterations=1,
        )
        return total

    return compute


_COMPUTE = {
    kind: tf.function(
        _computation(kind),
        input_signature=[tf.TensorSpec([None], kind), tf.TensorSpec([None], tf.int64)],
        autograph=False,
    )
    for kind in _WORDS
}
