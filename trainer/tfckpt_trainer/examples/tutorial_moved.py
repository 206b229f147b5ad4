"""TensorFlow's tutorial on custom training loops with several workers, with this library.

    tfckpt-tui launch RUN --workers 2 -- python -m tfckpt_trainer.examples.tutorial_moved RUN

`tutorial` is the same script without it. Its checkpoints are a starting point for this one.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import tensorflow as tf

from tfckpt_trainer.training import TrainingRun

NUM_EPOCHS = 3
NUM_STEPS_PER_EPOCH = 20
GLOBAL_BATCH_SIZE = 64


def dataset_fn(global_batch_size: int, input_context: tf.distribute.InputContext) -> Any:
    """Returns the batches of one worker, each for one replica."""
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    x = tf.random.stateless_uniform((2048, 28, 28), seed=(1, 2))
    y = tf.cast(10 * x[:, 14, 14], tf.int64)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(2048, seed=3)
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size)


def build_cnn_model() -> keras.Model:
    """Returns the model of the tutorial."""
    return keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main(checkpoint_dir: str) -> None:
    """Trains three epochs, with a checkpoint after each."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build_cnn_model()
        optimizer = keras.optimizers.RMSprop(learning_rate=0.001)
        optimizer.build(model.trainable_variables)
        run = TrainingRun(
            checkpoint_dir,
            model=model,
            optimizer=optimizer,
            dataset=lambda context: dataset_fn(GLOBAL_BATCH_SIZE, context),
            save_every_steps=NUM_STEPS_PER_EPOCH,
            total_steps=NUM_EPOCHS * NUM_STEPS_PER_EPOCH,
        )

    @run.function
    def train_step(inputs: Any) -> Any:
        x, y = inputs
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    for batch in run:
        train_step(batch)


if __name__ == "__main__":
    main(sys.argv[1])
