"""Metric learning for image similarity search, after keras-io, reduced.

Lines that end with `# +` are added to the example, and those with `# ~` are changed.

It trains on one replica. On several, each gets a part of the first dimension of a batch, as in
`model.fit`, which fails too: here that dimension tells anchors from positives.
"""

from __future__ import annotations

import random
from collections import defaultdict

import keras
import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, log_fit, parsed_arguments
from keras import layers

from tfckpt_trainer.training import create_strategy, fit

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)

height_width, num_classes = 8, 4
x_train = np.random.rand(48, height_width, height_width, 3).astype("float32")
y_train = np.arange(48) % num_classes
class_idx_to_train_idxs = defaultdict(list)
for y_train_idx, y in enumerate(y_train):
    class_idx_to_train_idxs[y].append(y_train_idx)


class AnchorPositivePairs(keras.utils.Sequence):
    """A batch of an anchor and a positive of each class, along a dimension of its own."""

    def __init__(self, num_batches):
        super().__init__()
        self.batches = num_batches  # ~ PyDataset has a property of the other name

    def __len__(self):
        return self.batches  # ~

    def __getitem__(self, idx):
        draw = random.Random(idx)  # + the draws of a batch depend on its index alone
        x = np.empty((2, num_classes, height_width, height_width, 3), dtype=np.float32)
        for class_idx in range(num_classes):
            examples_for_class = class_idx_to_train_idxs[class_idx]
            anchor_idx = draw.choice(examples_for_class)  # ~
            positive_idx = draw.choice(examples_for_class)  # ~
            while positive_idx == anchor_idx:
                positive_idx = draw.choice(examples_for_class)  # ~
            x[0, class_idx] = x_train[anchor_idx]
            x[1, class_idx] = x_train[positive_idx]
        return x


class EmbeddingModel(keras.Model):
    """Splits a batch into anchors and positives, and classifies their similarities."""

    def train_step(self, data):
        if isinstance(data, tuple):
            data = data[0]
        anchors, positives = data[0], data[1]
        with tf.GradientTape() as tape:
            anchor_embeddings = self(anchors, training=True)
            positive_embeddings = self(positives, training=True)
            similarities = tf.einsum("ae,pe->ap", anchor_embeddings, positive_embeddings)
            similarities /= 0.2
            sparse_labels = tf.range(num_classes)
            loss = self.compute_loss(y=sparse_labels, y_pred=similarities)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(sparse_labels, similarities)
        return {m.name: m.result() for m in self.metrics}


with strategy.scope():
    inputs = layers.Input(shape=(height_width, height_width, 3))
    x = layers.Conv2D(filters=4, kernel_size=3, strides=2, activation="relu")(inputs)
    x = layers.GlobalAveragePooling2D()(x)
    embeddings = layers.UnitNormalization()(layers.Dense(units=8, activation=None)(x))
    model = EmbeddingModel(inputs, embeddings)
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )

fit(  # ~
    model,  # ~
    AnchorPositivePairs(num_batches=4),
    epochs=options.steps // 4,
    callbacks=[log_fit(StepLog(options, strategy), model)],
    save_every_steps=SAVE_EVERY,  # +
)
