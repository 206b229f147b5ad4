"""A ranking model of TensorFlow Recommenders, in our own words, on data that is made.

Lines that end with `# +` are added to the plain script, and those with `# ~` are changed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs
from gone_back import SAVE_EVERY, StepLog, log_fit, parsed_arguments

from tfckpt_trainer.training import create_strategy, fit  # +

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
tf.keras.utils.set_random_seed(3)

rng = np.random.RandomState(0)
titles = np.array([f"movie {number}" for number in range(12)])
users = np.array([f"user {number}" for number in range(10)])
views = {
    "user_id": rng.choice(users, 80),
    "title": rng.choice(titles, 80),
    "time": rng.rand(80).astype("float32"),
    "rating": rng.randint(1, 6, 80).astype("float32"),
}
ratings = tf.data.Dataset.from_tensor_slices(views)
train = ratings.take(64).shuffle(100, seed=1).batch(16)  # ~ with a seed
test = ratings.skip(64).batch(16)


class Ratings(tf.keras.Model):
    """Predicts the rating of a movie, by its title, the user and the time."""

    def __init__(self):
        super().__init__()
        self.users = tf.keras.layers.StringLookup()
        self.users.adapt(users)
        self.titles = tf.keras.layers.StringLookup()
        self.titles.adapt(titles)
        self.times = tf.keras.layers.Discretization(num_bins=4)
        self.times.adapt(views["time"])
        self.user_embedding = tf.keras.layers.Embedding(len(users) + 1, 8)
        self.title_embedding = tf.keras.layers.Embedding(len(titles) + 1, 8)
        self.time_embedding = tf.keras.layers.Embedding(5, 4)
        self.cross = tfrs.layers.dcn.Cross()
        self.deep = tf.keras.Sequential(
            [tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)]
        )

    def call(self, features):
        parts = [
            self.user_embedding(self.users(features["user_id"])),
            self.title_embedding(self.titles(features["title"])),
            self.time_embedding(self.times(features["time"])),
        ]
        return self.deep(self.cross(tf.concat(parts, axis=1)))


class Ranking(tfrs.Model):
    """Trains the ratings."""

    def __init__(self):
        super().__init__()
        self.ratings = Ratings()
        self.task = tfrs.tasks.Ranking(
            loss=tf.keras.losses.MeanSquaredError(reduction="sum"),
            metrics=[tf.keras.metrics.RootMeanSquaredError(name="rmse")],
        )

    def compute_loss(self, features, training=False):
        return self.task(labels=features["rating"], predictions=self.ratings(features))


with strategy.scope():
    model = Ranking()
    model.compile(optimizer=tf.keras.optimizers.Adagrad(0.02))

fit(  # ~
    model,  # ~
    train,
    epochs=options.steps // 4,
    validation_data=test,
    callbacks=[log_fit(StepLog(options, strategy), model)],
    save_every_steps=SAVE_EVERY,  # +
)
