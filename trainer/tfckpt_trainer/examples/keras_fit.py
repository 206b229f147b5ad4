"""Keras training with `fit`, on any strategy, with Keras callbacks.

    tfckpt-tui launch RUN --workers 2 -- python -m tfckpt_trainer.examples.keras_fit

The differences from plain Keras: `fit(model, …)` replaces `model.fit(…)`, and the dataset yields
batches of one replica. If you kill the run in the middle of an epoch, it continues exactly there.
The data is generated, so there is nothing to download.
"""

from __future__ import annotations

import argparse
import os

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer.training import StrategyName, create_strategy, fit

EXAMPLES, SIDE, CLASSES, BATCH = 4096, 8, 10, 32


def digits(context: tf.distribute.InputContext, seed: int) -> tf.data.Dataset:
    """Returns this worker's shard of noisy images of ten fixed patterns."""
    random = np.random.default_rng(seed)
    patterns = np.random.default_rng(0).standard_normal((CLASSES, SIDE, SIDE, 1))
    labels = random.integers(0, CLASSES, EXAMPLES)
    pictures = patterns[labels] + 2 * random.standard_normal((EXAMPLES, SIDE, SIDE, 1))
    data = tf.data.Dataset.from_tensor_slices((pictures.astype("float32"), labels))
    return data.shard(context.num_input_pipelines, context.input_pipeline_id)


def main() -> None:
    """Trains until the last epoch, or until the run is stopped."""
    launched = "TF_CONFIG" in os.environ
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", help="checkpoint directory (the launcher gives it)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--strategy",
        choices=[n.value for n in StrategyName if n is not StrategyName.PARAMETER_SERVER],
        default=(StrategyName.MULTI_WORKER if launched else StrategyName.ONE_DEVICE).value,
    )
    options = parser.parse_args()
    strategy = create_strategy(options.strategy, threads=1)
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((SIDE, SIDE, 1)),
                keras.layers.Conv2D(16, 3, activation="relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Flatten(),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(CLASSES),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-3, 5_000)),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    fit(
        model,
        lambda context: digits(context, 1).shuffle(1024, seed=7).batch(BATCH, drop_remainder=True),
        run_dir=options.run_dir,
        epochs=options.epochs,
        validation_data=lambda context: digits(context, 2).batch(BATCH, drop_remainder=True),
        callbacks=[keras.callbacks.EarlyStopping("val_loss", patience=5)],
        save_every_epochs=1,
        save_every_seconds=60,
    )


if __name__ == "__main__":
    main()
