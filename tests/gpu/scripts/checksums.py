"""Computes checksums on the accelerator; prints what ran elsewhere and what differs there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf
from placement import DEVICE
from tensorflow.python.framework import op_callbacks

from tfckpt_trainer.training.state import device_checksums
from tfckpt_trainer.training.state.device_checksums import DeviceChecksums, result_of

ELEMENTS = device_checksums._PIECE_WORDS + 1000


def checksum(variable: tf.Variable, kind: str) -> int:
    """Returns the checksum of a variable on devices of a kind."""
    device_checksums.DEVICE_TYPE = kind
    (sums,) = DeviceChecksums().start(variable) or ()
    return result_of(sums)


def main() -> None:
    """Prints what was seen, as JSON."""
    elsewhere: list[str] = []

    def note(kind: Any, inputs, attributes, outputs, name=None, graph=None) -> None:
        large = [one for one in outputs if one.dtype.size and one.shape.num_elements() > 100]
        if any(not one.backing_device.endswith(DEVICE) for one in large):
            elsewhere.append(str(kind))

    values, different = np.random.default_rng(1).normal(size=ELEMENTS), []
    for kind in device_checksums._WORDS:
        value = tf.cast(values, kind)
        with tf.device(DEVICE):
            there = tf.Variable(value)
        with tf.device("CPU:0"):
            here = tf.Variable(value)
        op_callbacks.add_op_callback(note)
        found = checksum(there, DEVICE.partition(":")[0])
        op_callbacks.remove_op_callback(note)
        different += [kind.name] if found != checksum(here, "CPU") else []
    print(json.dumps({"elsewhere": elsewhere, "different": different}))


if __name__ == "__main__":
    main()
