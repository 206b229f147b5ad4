"""Image segmentation with augmentation, after TensorFlow's tutorial, reduced.

Lines that end with `# +` are added to the tutorial, and those with `# ~` are changed.
"""

from __future__ import annotations

import keras
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, log_fit, parsed_arguments
from keras import layers

from tfckpt_trainer.training import create_strategy, fit

options = parsed_arguments(as_published="augments by a Keras layer in the pipeline")
strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)

SIZE, OUTPUT_CLASSES, BATCH_SIZE, TRAIN_LENGTH = 8, 3, 8, 32
images = tf.random.stateless_uniform((TRAIN_LENGTH, SIZE, SIZE, 3), seed=(1, 2))
masks = tf.cast(images[..., :1] * OUTPUT_CLASSES, tf.int32)


class Augment(layers.Layer):
    """Flips images and their masks alike, by the seed of each layer."""

    def __init__(self, seed=42):
        super().__init__()
        self.augment_inputs = layers.RandomFlip(mode="horizontal", seed=seed)
        self.augment_labels = layers.RandomFlip(mode="horizontal", seed=seed)

    def call(self, inputs, labels):
        return self.augment_inputs(inputs), self.augment_labels(labels)


def augment(index, batch):  # +
    """Flips images and their masks alike, by the index of the batch."""
    seed = tf.stack([42, index])  # +
    return tuple(tf.image.stateless_random_flip_left_right(part, seed) for part in batch)  # +


train_batches = (
    tf.data.Dataset.from_tensor_slices((images, masks))
    .cache()
    .shuffle(1000, seed=1)  # ~ with a seed
    .batch(BATCH_SIZE)
    .repeat()
)
if options.as_published:
    train_batches = train_batches.map(Augment())
else:
    train_batches = train_batches.enumerate().map(augment)  # ~
train_batches = train_batches.prefetch(buffer_size=tf.data.AUTOTUNE)


def unet_model(output_channels):
    inputs = layers.Input((SIZE, SIZE, 3))
    down = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(inputs)
    bottom = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(down)
    up = layers.Conv2DTranspose(4, 3, strides=2, padding="same", use_bias=False)(bottom)
    up = layers.Dropout(0.5)(layers.BatchNormalization()(up))
    merged = layers.Concatenate()([layers.ReLU()(up), down])
    last = layers.Conv2DTranspose(output_channels, 3, strides=2, padding="same")
    return keras.Model(inputs, last(merged))


with strategy.scope():
    model = unet_model(OUTPUT_CLASSES)
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

fit(  # ~
    model,  # ~
    train_batches,
    epochs=options.steps // 4,
    steps_per_epoch=TRAIN_LENGTH // BATCH_SIZE,
    callbacks=[log_fit(StepLog(options, strategy), model)],
    save_every_steps=SAVE_EVERY,  # +
)
