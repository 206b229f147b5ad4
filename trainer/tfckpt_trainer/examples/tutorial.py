"""TensorFlow's tutorial on custom training loops with several workers, without this library.

    python -m tfckpt_trainer.examples.tutorial DIRECTORY

Only the data is different, so that nothing is downloaded. `tutorial_moved` is the same script with
this library. https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

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
        dataset = strategy.distribute_datasets_from_function(
            lambda context: dataset_fn(GLOBAL_BATCH_SIZE, context)
        )
        optimizer = keras.optimizers.RMSprop(learning_rate=0.001)

    def step_fn(inputs: Any) -> Any:
        x, y = inputs
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(iterator: Any) -> Any:
        per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    epoch = tf.Variable(0, dtype=tf.int64, name="epoch")
    step_in_epoch = tf.Variable(0, dtype=tf.int64, name="step_in_epoch")
    checkpoint = tf.train.Checkpoint(model=model, epoch=epoch, step_in_epoch=step_in_epoch)
    is_chief = strategy.cluster_resolver.task_id in (0, None)
    directory = Path(checkpoint_dir)
    if not is_chief:
        directory = directory / f"workertemp_{strategy.cluster_resolver.task_id}"
    manager = tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep=1)
    latest = tf.train.latest_checkpoint(checkpoint_dir)
    if latest:
        checkpoint.restore(latest)

    while epoch.numpy() < NUM_EPOCHS:
        iterator = iter(dataset)
        total_loss, num_batches = 0.0, 0
        while step_in_epoch.numpy() < NUM_STEPS_PER_EPOCH:
            total_loss += train_step(iterator)
            num_batches += 1
            step_in_epoch.assign_add(1)
        print(f"epoch {epoch.numpy()}: loss {total_loss / num_batches:.4f}", flush=True)
        epoch.assign_add(1)
        step_in_epoch.assign(0)
        manager.save()
        if not is_chief:
            tf.io.gfile.rmtree(str(directory))


if __name__ == "__main__":
    main(sys.argv[1])
