"""A listwise ranking model of TF-Ranking's kind, in our own words, on data that is made.

Lines that end with `# +` are added to the plain script, and those with `# ~` are changed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, log_fit, parsed_arguments

from tfckpt_trainer.training import create_strategy, fit  # +

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
tf.keras.utils.set_random_seed(3)

rng = np.random.RandomState(0)
lengths = rng.randint(2, 7, 40)
items, grades = rng.rand(lengths.sum(), 5), rng.randint(0, 5, lengths.sum())
features = tf.RaggedTensor.from_row_lengths(items.astype("float32"), lengths)
labels = tf.RaggedTensor.from_row_lengths(grades.astype("float32"), lengths)
lists = tf.data.Dataset.from_tensor_slices((features, labels))
train = lists.take(32).shuffle(100, seed=1).batch(8)  # ~ with a seed
validation = lists.skip(32).batch(8)


class SoftmaxLoss(tf.keras.losses.Loss):
    """The cross-entropy of the grades of the items of a list and their scores."""

    def call(self, y_true, y_pred):
        is_item = tf.sequence_mask(y_true.row_lengths())
        scores = tf.where(is_item, y_pred.to_tensor(), -1e9)
        return tf.nn.softmax_cross_entropy_with_logits(y_true.to_tensor(), scores)


class NDCG(tf.keras.metrics.Mean):
    """The normalized discounted cumulative gain of the lists."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        grades = y_true.to_tensor()
        scores = tf.where(tf.sequence_mask(y_true.row_lengths()), y_pred.to_tensor(), -1e9)
        order = tf.argsort(scores, direction="DESCENDING", stable=True)
        gained = self.discounted(tf.gather(grades, order, batch_dims=1))
        best = self.discounted(tf.sort(grades, direction="DESCENDING"))
        return super().update_state(tf.math.divide_no_nan(gained, best), sample_weight)

    def discounted(self, grades):
        ranks = tf.range(2, tf.shape(grades)[1] + 2, dtype=tf.float32)
        return tf.reduce_sum((2**grades - 1) / tf.math.log(ranks), axis=1)


def scoring_model():
    inputs = tf.keras.Input((None, 5), ragged=True)
    items = tf.keras.layers.Lambda(lambda lists: lists.flat_values)(inputs)
    hidden = tf.keras.layers.BatchNormalization(momentum=0.9)(items)
    hidden = tf.keras.layers.Dense(16, activation="relu")(hidden)
    hidden = tf.keras.layers.Dropout(0.2)(hidden)
    scores = tf.squeeze(tf.keras.layers.Dense(1)(hidden), axis=1)
    outputs = tf.keras.layers.Lambda(lambda parts: parts[0].with_flat_values(parts[1]))(
        [inputs, scores]
    )
    return tf.keras.Model(inputs, outputs)


with strategy.scope():
    model = scoring_model()
    model.compile(tf.keras.optimizers.Adagrad(0.02), SoftmaxLoss(), metrics=[NDCG(name="ndcg")])

fit(  # ~
    model,  # ~
    train,
    epochs=options.steps // 4,
    validation_data=validation,
    callbacks=[log_fit(StepLog(options, strategy), model)],
    save_every_steps=SAVE_EVERY,  # +
    random_seed=options.random_seed,  # +
)
