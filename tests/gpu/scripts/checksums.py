"""Computes checksums on the accelerator; prints what ran there, and what has other results."""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf
from placement import DEVICE
from tensorflow.python.eager import context

from tfckpt_trainer.training.state import device_checksums
from tfckpt_trainer.training.state.device_checksums import DeviceChecksums, result_of

ELEMENTS = device_checksums._PIECE_WORDS + 1000


def checksums(device: str) -> dict[str, int]:
    """Returns the checksum of a value of each type, computed on a device."""
    device_checksums.DEVICE_TYPE = device.partition(":")[0]
    values, found = np.random.default_rng(1).normal(size=ELEMENTS), {}
    for kind in device_checksums._WORDS:
        with tf.device(device):
            variable = tf.Variable(tf.cast(values, kind))
        (started,) = DeviceChecksums().start(variable) or ()
        found[kind.name] = result_of(started)
    return found


def main() -> None:
    """Prints what was seen, as JSON."""
    here = checksums("CPU:0")
    context.enable_run_metadata()
    there = checksums(DEVICE)
    graphs = [
        g for one in context.export_run_metadata().function_graphs for g in one.partition_graphs
    ]
    loops = {
        (node.op, node.device) for graph in graphs for node in graph.node if "while/" in node.name
    }
    different = [name for name in here if here[name] != there[name]]
    print(json.dumps({"accelerator": DEVICE, "ran": sorted(loops), "different": different}))


if __name__ == "__main__":
    main()
