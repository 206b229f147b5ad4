"""Custom training with `tf.distribute.Strategy`, after TensorFlow's tutorial, reduced.

Lines that end with `# +` are added to the tutorial, and those with `# ~` are changed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, parsed_arguments

from tfckpt_trainer import TrainingRun  # +
from tfckpt_trainer.training import create_strategy

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
tf.keras.utils.set_random_seed(3)

rng = np.random.RandomState(0)
train_images, train_labels = rng.rand(64, 8, 8, 1).astype("float32"), rng.randint(0, 4, 64)
test_images, test_labels = rng.rand(16, 8, 8, 1).astype("float32"), rng.randint(0, 4, 16)

BUFFER_SIZE = len(train_images)
BATCH_SIZE_PER_REPLICA = 4
GLOBAL_BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
STEPS_PER_EPOCH = 6  # +


def train_dataset(context):  # +
    dataset = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
    dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)  # +
    return dataset.shuffle(BUFFER_SIZE, seed=1).repeat().batch(BATCH_SIZE_PER_REPLICA)  # ~


test_dataset = tf.data.Dataset.from_tensor_slices((test_images, test_labels))
test_dataset = test_dataset.batch(GLOBAL_BATCH_SIZE)
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)


def create_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),  # +
            tf.keras.layers.Conv2D(4, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(8, activation="relu"),
            tf.keras.layers.Dense(4),
        ]
    )


with strategy.scope():
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def compute_loss(labels, predictions):
        per_example_loss = loss_object(labels, predictions)
        return tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)

    test_loss = tf.keras.metrics.Mean(name="test_loss")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    model = create_model()
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)  # +

run = TrainingRun(  # +
    model=model,  # +
    optimizer=optimizer,  # +
    metrics={  # +
        "test_loss": test_loss,  # +
        "train_accuracy": train_accuracy,  # +
        "test_accuracy": test_accuracy,  # +
    },  # +
    dataset=train_dataset,  # +
    strategy=strategy,  # +
    total_steps=options.steps,  # +
    save_every_steps=SAVE_EVERY,  # +
    random_seed=options.random_seed,  # +
)  # +


@run.function  # ~
def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    train_accuracy.update_state(labels, predictions)
    return loss * run.replica_count  # ~


def test_step(inputs):
    images, labels = inputs
    predictions = model(images, training=False)
    t_loss = loss_object(labels, predictions)
    test_loss.update_state(t_loss)
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_test_step(dataset_inputs):
    return strategy.run(test_step, args=(dataset_inputs,))


log = StepLog(options, strategy)
metrics = [test_loss, train_accuracy, test_accuracy]
variables = [v for owner in (model, optimizer, *metrics) for v in owner.variables]
run.state.update(total_loss=0.0, num_batches=0)  # ~
for x in run:  # ~
    seen = train_step(x)  # ~
    run.state["total_loss"] += float(seen["loss"])  # ~
    run.state["num_batches"] += 1  # ~
    if (run.step + 1) % STEPS_PER_EPOCH == 0:  # ~
        train_loss = run.state["total_loss"] / run.state["num_batches"]  # ~
        for test_x in test_dist_dataset:
            distributed_test_step(test_x)
        seen = {
            **seen,
            "train_loss": train_loss,
            "train_accuracy": train_accuracy.result(),
            "test_loss": test_loss.result(),
            "test_accuracy": test_accuracy.result(),
        }
        run.state.update(total_loss=0.0, num_batches=0)  # ~
        for metric in metrics:
            metric.reset_state()
    log.write(run.step + 1, variables, **seen)
