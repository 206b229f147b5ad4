"""A two-tower retrieval model of TensorFlow Recommenders, in our own words, on data that is made.

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
titles = [f"{a} {b}" for a in ("red", "old", "lost") for b in ("river", "city", "star", "road")]
users = [f"user {number}" for number in range(10)]
views = {"user_id": rng.choice(users, 80), "title": rng.choice(titles, 80)}
views = tf.data.Dataset.from_tensor_slices(views)
movies = tf.data.Dataset.from_tensor_slices(titles)
train = views.take(64).shuffle(100, seed=1).batch(16).cache()  # ~ with a seed
test = views.skip(64).batch(16).cache()


class UserTower(tf.keras.Model):
    """Embeds users."""

    def __init__(self):
        super().__init__()
        self.embedding = tf.keras.Sequential(
            [
                tf.keras.layers.StringLookup(vocabulary=users, mask_token=None),
                tf.keras.layers.Embedding(len(users) + 1, 8),
            ]
        )

    def call(self, names):
        return self.embedding(names)


class MovieTower(tf.keras.Model):
    """Embeds movies, by their titles and the words in them."""

    def __init__(self):
        super().__init__()
        self.titles = tf.keras.layers.StringLookup(vocabulary=titles, mask_token=None)
        self.embedding = tf.keras.layers.Embedding(len(titles) + 1, 8)
        self.words = tf.keras.layers.TextVectorization(max_tokens=20)
        self.words.adapt(movies)
        self.embeddings_of_words = tf.keras.layers.Embedding(20, 8, mask_zero=True)
        self.mean = tf.keras.layers.GlobalAveragePooling1D()

    def call(self, names):
        words = self.mean(self.embeddings_of_words(self.words(names)))
        return self.embedding(self.titles(names)) + words


class Retrieval(tfrs.Model):
    """Finds the movie of a user among those of the batch."""

    def __init__(self):
        super().__init__()
        self.user_tower = UserTower()
        self.movie_tower = MovieTower()
        candidates = movies.batch(4).map(self.movie_tower)
        metrics = tfrs.metrics.FactorizedTopK(candidates, ks=(1, 5))
        self.task = tfrs.tasks.Retrieval(metrics=metrics)

    def compute_loss(self, features, training=False):
        queries = self.user_tower(features["user_id"])
        found = self.movie_tower(features["title"])
        return self.task(queries, found, compute_metrics=not training)


with strategy.scope():
    model = Retrieval()
    model.compile(optimizer=tf.keras.optimizers.Adagrad(0.1))

fit(  # ~
    model,  # ~
    train,
    epochs=options.steps // 4,
    validation_data=test,
    callbacks=[log_fit(StepLog(options, strategy), model)],
    save_every_steps=SAVE_EVERY,  # +
)
