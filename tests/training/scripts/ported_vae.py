"""A convolutional VAE with a custom loop, after TensorFlow's tutorial, reduced.

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

BATCH_SIZE, LATENT_DIM = 8, 2
images = (np.random.RandomState(0).rand(64, 8, 8, 1) > 0.5).astype("float32")


class CVAE(tf.keras.Model):
    """An encoder to a normal distribution, and a decoder of samples from it."""

    def __init__(self, latent_dim):
        super().__init__()
        self.latent_dim = latent_dim
        self.encoder = tf.keras.Sequential(
            [
                tf.keras.layers.Input((8, 8, 1)),
                tf.keras.layers.Conv2D(4, 3, strides=2, activation="relu"),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(latent_dim + latent_dim),
            ]
        )
        self.decoder = tf.keras.Sequential(
            [
                tf.keras.layers.Input((latent_dim,)),
                tf.keras.layers.Dense(4 * 4 * 2, activation="relu"),
                tf.keras.layers.Reshape((4, 4, 2)),
                tf.keras.layers.Conv2DTranspose(1, 3, strides=2, padding="same"),
            ]
        )

    @tf.function
    def sample(self, eps=None):
        if eps is None:
            eps = tf.random.normal(shape=(100, self.latent_dim))
        return self.decode(eps, apply_sigmoid=True)

    def encode(self, x):
        return tf.split(self.encoder(x), num_or_size_splits=2, axis=1)

    def reparameterize(self, mean, logvar):
        eps = tf.random.normal(shape=mean.shape)
        return eps * tf.exp(logvar * 0.5) + mean

    def decode(self, z, apply_sigmoid=False):
        logits = self.decoder(z)
        return tf.sigmoid(logits) if apply_sigmoid else logits


def log_normal_pdf(sample, mean, logvar, raxis=1):
    log2pi = tf.math.log(2.0 * np.pi)
    density = -0.5 * ((sample - mean) ** 2.0 * tf.exp(-logvar) + logvar + log2pi)
    return tf.reduce_sum(density, axis=raxis)


def compute_loss(model, x):
    mean, logvar = model.encode(x)
    z = model.reparameterize(mean, logvar)
    x_logit = model.decode(z)
    cross_ent = tf.nn.sigmoid_cross_entropy_with_logits(logits=x_logit, labels=x)
    logpx_z = -tf.reduce_sum(cross_ent, axis=[1, 2, 3])
    logpz = log_normal_pdf(z, 0.0, 0.0)
    return -tf.reduce_mean(logpx_z + logpz - log_normal_pdf(z, mean, logvar))


def train_step(model, x, optimizer):  # ~ without @tf.function
    with tf.GradientTape() as tape:
        loss = compute_loss(model, x)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss  # +


with strategy.scope():
    model = CVAE(LATENT_DIM)
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)  # +

train_dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(64, seed=1)
train_dataset = train_dataset.batch(BATCH_SIZE, drop_remainder=True).repeat()

run = TrainingRun(  # +
    model=model,  # +
    optimizer=optimizer,  # +
    dataset=train_dataset,  # +
    strategy=strategy,  # +
    total_steps=options.steps,  # +
    save_every_steps=SAVE_EVERY,  # +
    random_seed=options.random_seed,  # +
)  # +
step = run.function(lambda x: train_step(model, x, optimizer))  # +

log = StepLog(options, strategy)
for train_x in run:  # ~
    losses = step(train_x)  # ~
    # The tutorial looks at samples between steps, and draws noise eagerly.
    seen = tf.reduce_mean(model.sample()) + tf.reduce_mean(tf.random.normal([3]))
    log.write(run.step + 1, [*model.variables, *optimizer.variables], seen=seen, **losses)
