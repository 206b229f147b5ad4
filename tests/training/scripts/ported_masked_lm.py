"""End-to-end masked language modeling with BERT, after keras-io, reduced.

Lines that end with `# +` are added to the example, and those with `# ~` are changed.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from gone_back import SAVE_EVERY, StepLog, log_fit, parsed_arguments
from keras import layers

from tfckpt_trainer.training import create_strategy, fit

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)

MAX_LEN, BATCH_SIZE, VOCAB_SIZE, EMBED_DIM, NUM_HEAD, FF_DIM = 12, 8, 30, 8, 2, 8
MASK_TOKEN = VOCAB_SIZE - 1


def get_masked_input_and_labels(encoded_texts):
    inp_mask = np.random.rand(*encoded_texts.shape) < 0.15
    inp_mask[encoded_texts <= 2] = False
    labels = np.where(inp_mask, encoded_texts, -1)
    encoded_texts_masked = np.copy(encoded_texts)
    masked = inp_mask & (np.random.rand(*encoded_texts.shape) < 0.90)
    encoded_texts_masked[masked] = MASK_TOKEN
    at_random = masked & (np.random.rand(*encoded_texts.shape) < 1 / 9)
    encoded_texts_masked[at_random] = np.random.randint(3, MASK_TOKEN, at_random.sum())
    sample_weights = np.where(labels == -1, 0, 1)
    return encoded_texts_masked, np.copy(encoded_texts), sample_weights


texts = np.random.randint(3, MASK_TOKEN, (4 * BATCH_SIZE, MAX_LEN))
mlm_ds = tf.data.Dataset.from_tensor_slices(get_masked_input_and_labels(texts))
mlm_ds = mlm_ds.shuffle(1000, seed=1).batch(BATCH_SIZE)  # ~ with a seed


def bert_module(query, key, value, i):
    attention_output = layers.MultiHeadAttention(NUM_HEAD, EMBED_DIM // NUM_HEAD)(query, key, value)
    attention_output = layers.Dropout(0.1, name=f"encoder_{i}_att_dropout")(attention_output)
    attention_output = layers.LayerNormalization(epsilon=1e-6)(query + attention_output)
    ffn = keras.Sequential([layers.Dense(FF_DIM, activation="relu"), layers.Dense(EMBED_DIM)])
    ffn_output = layers.Dropout(0.1, name=f"encoder_{i}_ffn_dropout")(ffn(attention_output))
    return layers.LayerNormalization(epsilon=1e-6)(attention_output + ffn_output)


loss_fn = keras.losses.SparseCategoricalCrossentropy(reduction=None)
with strategy.scope():
    loss_tracker = keras.metrics.Mean(name="loss")


class MaskedLanguageModel(keras.Model):
    """Counts the loss of masked tokens alone, by a metric of the module."""

    def train_step(self, inputs):
        features, labels, sample_weight = inputs
        with tf.GradientTape() as tape:
            predictions = self(features, training=True)
            loss = loss_fn(labels, predictions, sample_weight=sample_weight)
        trainable_vars = self.trainable_variables
        gradients = tape.gradient(loss, trainable_vars)
        self.optimizer.apply_gradients(zip(gradients, trainable_vars, strict=True))
        loss_tracker.update_state(loss, sample_weight=sample_weight)
        return {"loss": loss_tracker.result()}

    @property
    def metrics(self):
        return [loss_tracker]


def create_masked_language_bert_model():
    inputs = layers.Input((MAX_LEN,), dtype="int64")
    embeddings = layers.Embedding(VOCAB_SIZE, EMBED_DIM)(inputs)
    positions = layers.Embedding(MAX_LEN, EMBED_DIM)(tf.range(MAX_LEN))
    encoder_output = embeddings + positions
    encoder_output = bert_module(encoder_output, encoder_output, encoder_output, 0)
    outputs = layers.Dense(VOCAB_SIZE, activation="softmax")(encoder_output)
    mlm_model = MaskedLanguageModel(inputs, outputs)
    mlm_model.compile(optimizer=keras.optimizers.Adam(0.001))
    return mlm_model


with strategy.scope():
    bert_masked_model = create_masked_language_bert_model()

fit(  # ~
    bert_masked_model,  # ~
    mlm_ds,
    epochs=options.steps // 4,
    callbacks=[log_fit(StepLog(options, strategy), bert_masked_model)],
    save_every_steps=SAVE_EVERY,  # +
)
