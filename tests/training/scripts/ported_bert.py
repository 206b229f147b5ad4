"""Fine-tuning of a small BERT, after the kind of TensorFlow's Model Garden, in our own words.

Lines that end with `# +` are added to the plain script, and those with `# ~` are changed.
"""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, log_fit, parsed_arguments

from tfckpt_trainer.training import create_strategy, fit  # +

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
tf.keras.utils.set_random_seed(3)

LENGTH, VOCABULARY, WIDTH, HEADS, BATCH_SIZE, EPOCHS = 10, 30, 16, 2, 16, options.steps // 4
rng = np.random.RandomState(0)
words = rng.randint(1, VOCABULARY, (80, LENGTH)).astype("int32")
mask = (np.arange(LENGTH) < rng.randint(3, LENGTH + 1, (80, 1))).astype("int32")
features = {
    "input_word_ids": words * mask,
    "input_mask": mask,
    "input_type_ids": np.zeros_like(mask),
}
sentences = tf.data.Dataset.from_tensor_slices((features, rng.randint(0, 2, 80)))
train = sentences.take(64).shuffle(64, seed=1).batch(BATCH_SIZE)  # ~ with a seed
validation = sentences.skip(64).batch(BATCH_SIZE)
STEPS = EPOCHS * 64 // BATCH_SIZE


class WarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise, and then another schedule."""

    def __init__(self, peak, steps, then):
        self.peak, self.steps, self.then = peak, steps, then

    def __call__(self, step):
        done = tf.cast(step, tf.float32) / self.steps
        return tf.cond(done < 1, lambda: self.peak * done, lambda: self.then(step))

    def get_config(self):
        return {"peak": self.peak, "steps": self.steps, "then": self.then}


class AdamWeightDecay(tf.keras.optimizers.legacy.Adam):
    """Adam that clips all gradients by their common norm, and decays weights beside the moments."""

    def __init__(self, rate, decay, no_decay, clip, **options):
        super().__init__(rate, name="AdamWeightDecay", **options)
        self.decay, self.no_decay, self.clip = decay, re.compile("|".join(no_decay)), clip

    def apply_gradients(self, grads_and_vars, name=None, experimental_aggregate_gradients=True):
        gradients, variables = zip(*grads_and_vars, strict=True)
        if experimental_aggregate_gradients:
            gradients = tf.distribute.get_replica_context().all_reduce("sum", list(gradients))
        gradients, _ = tf.clip_by_global_norm(gradients, self.clip)
        pairs = zip(gradients, variables, strict=True)
        return super().apply_gradients(pairs, name, experimental_aggregate_gradients=False)

    def decayed(self, variable, apply_state):
        if self.no_decay.search(variable.name):
            return tf.no_op()
        rate = apply_state[variable.device, variable.dtype.base_dtype]["lr_t"]
        return variable.assign_sub(rate * self.decay * variable, use_locking=self._use_locking)

    def _resource_apply_dense(self, grad, var, apply_state=None):
        with tf.control_dependencies([self.decayed(var, apply_state)]):
            return super()._resource_apply_dense(grad, var, apply_state)

    def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
        with tf.control_dependencies([self.decayed(var, apply_state)]):
            return super()._resource_apply_sparse(grad, var, indices, apply_state)

    def get_config(self):
        return {**super().get_config(), "decay": self.decay, "clip": self.clip}


class EncoderBlock(tf.keras.layers.Layer):
    """Attention and a network of two layers, each with a shortcut."""

    def __init__(self, **options):
        super().__init__(**options)
        self.attention = tf.keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1)
        self.norms = [tf.keras.layers.LayerNormalization(epsilon=1e-12) for _ in range(2)]
        self.wide = tf.keras.layers.Dense(2 * WIDTH, activation="gelu")
        self.narrow = tf.keras.layers.Dense(WIDTH)
        self.dropout = tf.keras.layers.Dropout(0.1)

    def call(self, inputs, training=None):
        hidden, mask = inputs
        attended = self.attention(hidden, hidden, attention_mask=mask, training=training)
        hidden = self.norms[0](hidden + self.dropout(attended, training=training))
        fed = self.narrow(self.wide(hidden))
        return self.norms[1](hidden + self.dropout(fed, training=training))


class Encoder(tf.keras.layers.Layer):
    """Embeds the words of a sentence, and returns what stands at its first place."""

    def __init__(self, blocks, **options):
        super().__init__(**options)
        self.words = tf.keras.layers.Embedding(VOCABULARY, WIDTH, name="word_embeddings")
        self.types = tf.keras.layers.Embedding(2, WIDTH, name="type_embeddings")
        self.places = self.add_weight("places", (LENGTH, WIDTH), initializer="glorot_uniform")
        self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.dropout = tf.keras.layers.Dropout(0.1)
        self.blocks = [EncoderBlock() for _ in range(blocks)]
        self.pooler = tf.keras.layers.Dense(WIDTH, activation="tanh")

    def call(self, inputs, training=None):
        hidden = self.words(inputs["input_word_ids"]) + self.types(inputs["input_type_ids"])
        hidden = self.dropout(self.norm(hidden + self.places), training=training)
        mask = inputs["input_mask"][:, tf.newaxis, :]
        for block in self.blocks:
            hidden = block((hidden, mask), training=training)
        return self.pooler(hidden[:, 0])


class Classifier(tf.keras.Model):
    """An encoder and a head."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder(2, name="encoder")
        self.dropout = tf.keras.layers.Dropout(0.1)
        self.head = tf.keras.layers.Dense(2, name="head")

    def call(self, inputs, training=None):
        return self.head(self.dropout(self.encoder(inputs, training=training), training=training))


decay = tf.keras.optimizers.schedules.PolynomialDecay(1e-3, STEPS, end_learning_rate=0.0)
rate = WarmUp(1e-3, STEPS // 4, decay)
with strategy.scope():
    classifier = Classifier()
    classifier.compile(
        optimizer=AdamWeightDecay(rate, 0.01, ["LayerNorm", "layer_norm", "bias"], clip=1.0),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

fit(  # ~
    classifier,  # ~
    train,
    epochs=EPOCHS,
    validation_data=validation,
    callbacks=[log_fit(StepLog(options, strategy), classifier)],
    save_every_steps=SAVE_EVERY,  # +
    random_seed=options.random_seed,  # +
)
