"""A WGAN-GP that overrides `train_step`, after the example of keras.io, reduced.

Lines that end with `# +` are added to the example, and those with `# ~` are changed.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, parsed_arguments
from keras import layers

from tfckpt_trainer.training import create_strategy, fit  # +

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)

BATCH_SIZE, NOISE_DIM = 8, 10
images = np.random.RandomState(0).rand(64, 8, 8, 1).astype("float32") * 2 - 1


def get_discriminator_model():
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )


def get_generator_model():
    return keras.Sequential(
        [
            layers.Input((NOISE_DIM,)),
            layers.Dense(4 * 4 * 4, use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Reshape((4, 4, 4)),
            layers.UpSampling2D(2),
            layers.Conv2D(1, 3, padding="same", activation="tanh"),
        ]
    )


class WGAN(keras.Model):
    """Trains the discriminator several times for each step of the generator."""

    def __init__(self, discriminator, generator, latent_dim, discriminator_extra_steps=3):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.d_steps = discriminator_extra_steps
        self.gp_weight = 10.0

    def compile(self, d_optimizer, g_optimizer, d_loss_fn, g_loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.d_loss_fn = d_loss_fn
        self.g_loss_fn = g_loss_fn

    def gradient_penalty(self, batch_size, real_images, fake_images):
        alpha = tf.random.uniform([batch_size, 1, 1, 1], 0.0, 1.0)
        interpolated = real_images + alpha * (fake_images - real_images)
        with tf.GradientTape() as gp_tape:
            gp_tape.watch(interpolated)
            pred = self.discriminator(interpolated, training=True)
        grads = gp_tape.gradient(pred, [interpolated])[0]
        norm = tf.sqrt(tf.reduce_sum(tf.square(grads), axis=[1, 2, 3]))
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, real_images):
        batch_size = tf.shape(real_images)[0]
        for _ in range(self.d_steps):
            random_latent_vectors = tf.random.normal(shape=(batch_size, self.latent_dim))
            with tf.GradientTape() as tape:
                fake_images = self.generator(random_latent_vectors, training=True)
                fake_logits = self.discriminator(fake_images, training=True)
                real_logits = self.discriminator(real_images, training=True)
                d_cost = self.d_loss_fn(real_img=real_logits, fake_img=fake_logits)
                gp = self.gradient_penalty(batch_size, real_images, fake_images)
                d_loss = d_cost + gp * self.gp_weight
            d_gradient = tape.gradient(d_loss, self.discriminator.trainable_variables)
            self.d_optimizer.apply_gradients(
                zip(d_gradient, self.discriminator.trainable_variables, strict=True)
            )
        random_latent_vectors = tf.random.normal(shape=(batch_size, self.latent_dim))
        with tf.GradientTape() as tape:
            generated_images = self.generator(random_latent_vectors, training=True)
            gen_img_logits = self.discriminator(generated_images, training=True)
            g_loss = self.g_loss_fn(gen_img_logits)
        gen_gradient = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(
            zip(gen_gradient, self.generator.trainable_variables, strict=True)
        )
        return {"d_loss": d_loss, "g_loss": g_loss}


def discriminator_loss(real_img, fake_img):
    return tf.reduce_mean(fake_img) - tf.reduce_mean(real_img)


def generator_loss(fake_img):
    return -tf.reduce_mean(fake_img)


with strategy.scope():
    wgan = WGAN(get_discriminator_model(), get_generator_model(), NOISE_DIM)
    wgan.compile(
        d_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9),
        g_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9),
        g_loss_fn=generator_loss,
        d_loss_fn=discriminator_loss,
    )
    wgan.d_optimizer.build(wgan.discriminator.trainable_variables)  # +
    wgan.g_optimizer.build(wgan.generator.trainable_variables)  # +

log = StepLog(options, strategy)


class Log(keras.callbacks.Callback):
    """Logs each step."""

    def on_train_batch_end(self, batch, logs=None):
        optimizers = (wgan.d_optimizer, wgan.g_optimizer)
        variables = [*wgan.variables, *(v for one in optimizers for v in one.variables)]
        log.write(int(wgan.g_optimizer.iterations.numpy()), variables, **logs)


fit(  # ~
    wgan,  # ~
    images,
    batch_size=2 * BATCH_SIZE,
    epochs=options.steps // 4,
    callbacks=[Log()],
    save_every_steps=SAVE_EVERY,  # +
    random_seed=options.random_seed,  # +
)
