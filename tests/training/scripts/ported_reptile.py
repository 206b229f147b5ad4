"""Few-shot learning with Reptile, after keras-io, reduced.

Lines that end with `# +` are added to the example, and those with `# ~` are changed.
"""

from __future__ import annotations

import random

import keras
import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, parsed_arguments
from keras import layers

from tfckpt_trainer import TrainingRun  # +
from tfckpt_trainer.training import create_strategy

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)

learning_rate, meta_step_size, inner_batch_size = 0.003, 0.25, 4
meta_iters, inner_iters, shots, classes = options.steps, 2, 3, 3
images = np.random.rand(6, 8, 8, 8, 1).astype("float32")


def get_mini_dataset(batch_size, repetitions, shots, num_classes):
    temp_labels = np.zeros(shape=(num_classes * shots))
    temp_images = np.zeros(shape=(num_classes * shots, 8, 8, 1))
    label_subset = random.sample(range(len(images)), num_classes)
    for class_idx, label in enumerate(label_subset):
        temp_labels[class_idx * shots : (class_idx + 1) * shots] = class_idx
        temp_images[class_idx * shots : (class_idx + 1) * shots] = images[
            label, np.random.choice(8, shots)
        ]
    dataset = tf.data.Dataset.from_tensor_slices(
        (temp_images.astype(np.float32), temp_labels.astype(np.int32))
    )
    shuffled = dataset.shuffle(100, seed=random.getrandbits(31))  # ~ with a seed
    return shuffled.batch(batch_size).repeat(repetitions)


with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(classes, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(learning_rate=learning_rate)
    optimizer.build(model.trainable_variables)  # +


def train_on(images, labels):
    with tf.GradientTape() as tape:
        preds = model(images, training=True)
        loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(labels, preds))
    grads = tape.gradient(loss, model.trainable_weights)
    optimizer.apply_gradients(zip(grads, model.trainable_weights, strict=True))
    return loss


log = StepLog(options, strategy)
run = TrainingRun(  # +
    model=model,  # +
    optimizer=optimizer,  # +
    strategy=strategy,  # +
    total_steps=meta_iters,  # +
    save_every_steps=SAVE_EVERY,  # +
)  # +
for meta_iter in run:  # ~
    cur_meta_step_size = (1 - meta_iter / meta_iters) * meta_step_size
    old_vars = model.get_weights()
    mini_dataset = get_mini_dataset(inner_batch_size, inner_iters, shots, classes)
    losses = [strategy.run(train_on, args=batch) for batch in mini_dataset]  # ~
    new_vars = model.get_weights()
    for var in range(len(new_vars)):
        new_vars[var] = old_vars[var] + (new_vars[var] - old_vars[var]) * cur_meta_step_size
    model.set_weights(new_vars)
    run.report(loss=losses[-1])  # +
    log.write(run.step + 1, [*model.variables, *optimizer.variables], loss=losses[-1])
