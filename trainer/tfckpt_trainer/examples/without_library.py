"""A training script that does not use this library. The terminal app can still open its directory.

    python -m tfckpt_trainer.examples.without_library runs/theirs &
    tfckpt-tui attach runs/theirs

Listing, verifying, inspecting, comparing and pruning need a directory of checkpoints only. Saving
on request, restoring in place and pausing need a trainer that uses the library.
"""

from __future__ import annotations

import sys
import time

import keras
import tensorflow as tf


def main() -> None:
    """Trains with a CheckpointManager, as in the TensorFlow guide."""
    directory = sys.argv[1] if len(sys.argv) > 1 else "runs/theirs"
    saves = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(1e-3)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=5)
    checkpoint.restore(manager.latest_checkpoint)
    for _ in range(saves):
        x = tf.random.normal((32, 8))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - tf.reduce_sum(x, axis=1, keepdims=True)) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        print(manager.save(), float(loss), flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
