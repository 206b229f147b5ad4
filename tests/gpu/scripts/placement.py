"""Saves and restores a variable in main memory; prints what was placed on the accelerator.

The accelerator is a GPU, or a second logical CPU. Operations without a device run there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import keras
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from tfckpt_trainer.training.checkpoint.saves.sharded_writer import CheckpointLayout, ShardedWriter
from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.keras.callback_state import CallbackState
from tfckpt_trainer.training.state.comparison import wrong_values
from tfckpt_trainer.training.state.values_by_path import (
    compare_values,
    read_values,
    restore_values,
    write_values,
)

ROWS, COLUMNS = 64, 32


def accelerator() -> str:
    """Returns the GPU, or a logical CPU in its place."""
    if tf.config.list_physical_devices("GPU"):
        return "GPU:0"
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return "CPU:1"


DEVICE = accelerator()


@contextmanager
def noting(placed: list[str]) -> Iterator[None]:
    """Adds the operations of the block that put many values on the accelerator."""

    def note(kind, inputs, attributes, outputs, name=None, graph=None) -> None:
        values = [] if graph is not None else outputs
        large = [v for v in values if v.dtype.size and v.shape.num_elements() >= COLUMNS]
        if any(value.backing_device.endswith(DEVICE) for value in large):
            placed.append(kind.decode() if isinstance(kind, bytes) else kind)

    op_callbacks.add_op_callback(note)
    try:
        # A second CPU is not chosen by itself.
        with nullcontext() if DEVICE.startswith("GPU") else tf.device(DEVICE):
            yield
    finally:
        op_callbacks.remove_op_callback(note)


def keep_best_weights(model: keras.Model, best: list[object]) -> None:
    """Keeps the weights as `fit` does for an EarlyStopping, and brings them back."""
    keeper = keras.callbacks.EarlyStopping(restore_best_weights=True)
    keeper.best_weights = best
    state = CallbackState([keeper])
    state.create_variables(model, 1)
    state.begin()
    state.restore(state.text())


def main() -> None:
    """Prints the operations by part, as JSON."""
    directory = Path(sys.argv[1])
    with tf.device("/CPU:0"):
        table = tf.Variable(tf.random.normal((ROWS, COLUMNS)))
        model = keras.Sequential([keras.Input((ROWS,)), keras.layers.Dense(COLUMNS)])
        best = model.get_weights()
    shared = SharedState(None, None, {"table": table})
    layout = CheckpointLayout.of(shared.checkpoint)
    writer = ShardedWriter(layout, writers=1, writer=0, largest=ROWS * COLUMNS)
    whole, beside = directory / "whole", directory / "beside"

    def write() -> None:
        writer.write(writer.snapshot(), whole)
        writer.merge(whole)

    def restore_some() -> None:
        shared.restore_variables(whole, shared.compare(whole).matched)

    def store_beside() -> None:
        write_values(beside, read_values(shared.find()))
        restore_values(beside, compare_values(shared.find(), beside).matched)

    parts: dict[str, Callable[[], object]] = {
        "write": write,
        "prove": lambda: wrong_values(shared.compare(whole).matched, whole),
        "restore": lambda: shared.restore(whole),
        "restore some": restore_some,
        "store beside": store_beside,
        "keep the best weights": lambda: keep_best_weights(model, best),
    }
    found: dict[str, list[str]] = {}
    for name, act in parts.items():
        with noting(found.setdefault(name, [])):
            act()
    with noting(found.setdefault("plain read", [])):
        table.read_value()
    print(json.dumps({name: sorted(set(kinds)) for name, kinds in found.items()}))


if __name__ == "__main__":
    main()
