"""A DCGAN with a custom loop, after TensorFlow's tutorial, reduced.

Lines that end with `# +` are added to the tutorial, and those with `# ~` are changed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, parsed_arguments
from keras import layers

from tfckpt_trainer import TrainingRun  # +
from tfckpt_trainer.training import create_strategy

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
tf.keras.utils.set_random_seed(3)

BATCH_SIZE, NOISE_DIM = 8, 10
images = np.random.RandomState(0).rand(64, 8, 8, 1).astype("float32") * 2 - 1


def make_generator_model():
    model = tf.keras.Sequential()
    model.add(layers.Input((NOISE_DIM,)))
    model.add(layers.Dense(2 * 2 * 8, use_bias=False))
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())
    model.add(layers.Reshape((2, 2, 8)))
    model.add(layers.Conv2DTranspose(4, 3, strides=2, padding="same", use_bias=False))
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())
    model.add(layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="tanh"))
    return model


def make_discriminator_model():
    model = tf.keras.Sequential()
    model.add(layers.Input((8, 8, 1)))
    model.add(layers.Conv2D(4, 3, strides=2, padding="same"))
    model.add(layers.LeakyReLU())
    model.add(layers.Dropout(0.3))
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)


def discriminator_loss(real_output, fake_output):
    real_loss = cross_entropy(tf.ones_like(real_output), real_output)
    return real_loss + cross_entropy(tf.zeros_like(fake_output), fake_output)


def generator_loss(fake_output):
    return cross_entropy(tf.ones_like(fake_output), fake_output)


with strategy.scope():
    generator = make_generator_model()
    discriminator = make_discriminator_model()
    generator_optimizer = tf.keras.optimizers.Adam(1e-3)
    discriminator_optimizer = tf.keras.optimizers.Adam(1e-3)
    generator_optimizer.build(generator.trainable_variables)  # +
    discriminator_optimizer.build(discriminator.trainable_variables)  # +

train_dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(64, seed=1)
train_dataset = train_dataset.batch(BATCH_SIZE).repeat()

run = TrainingRun(  # +
    model={"generator": generator, "discriminator": discriminator},  # +
    optimizer={"generator": generator_optimizer, "discriminator": discriminator_optimizer},  # +
    dataset=train_dataset,  # +
    strategy=strategy,  # +
    total_steps=options.steps,  # +
    save_every_steps=SAVE_EVERY,  # +
    random_seed=options.random_seed,  # +
)  # +


@run.function  # ~
def train_step(images):
    noise = tf.random.normal([BATCH_SIZE, NOISE_DIM])
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated_images = generator(noise, training=True)
        real_output = discriminator(images, training=True)
        fake_output = discriminator(generated_images, training=True)
        gen_loss = generator_loss(fake_output)
        disc_loss = discriminator_loss(real_output, fake_output)
    gen_gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
    disc_gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    generator_optimizer.apply_gradients(
        zip(gen_gradients, generator.trainable_variables, strict=True)
    )
    discriminator_optimizer.apply_gradients(
        zip(disc_gradients, discriminator.trainable_variables, strict=True)
    )
    return {"gen_loss": gen_loss, "disc_loss": disc_loss}  # +


log = StepLog(options, strategy)
variables = [
    *generator.variables,
    *discriminator.variables,
    *generator_optimizer.variables,
    *discriminator_optimizer.variables,
]
for image_batch in run:  # ~
    losses = train_step(image_batch)
    log.write(run.step + 1, variables, **losses)
