"""Text classification with a Transformer, after keras-io, reduced.

Lines that end with `# +` are added to the example, and those with `# ~` are changed.
"""

from __future__ import annotations

import keras
import numpy as np
from gone_back import SAVE_EVERY, StepLog, log_fit, parsed_arguments
from keras import layers, ops

from tfckpt_trainer.training import create_strategy, fit

options = parsed_arguments()
strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)


class TransformerBlock(layers.Layer):
    """Attention and a network of two layers, each with a residual connection."""

    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs):
        attn_output = self.dropout1(self.att(inputs, inputs))
        out1 = self.layernorm1(inputs + attn_output)
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


class TokenAndPositionEmbedding(layers.Layer):
    """The sum of two embeddings."""

    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x):
        positions = self.pos_emb(ops.arange(start=0, stop=ops.shape(x)[-1], step=1))
        return self.token_emb(x) + positions


vocab_size, maxlen, embed_dim, num_heads, ff_dim = 30, 10, 8, 2, 8
x_train = np.random.randint(1, vocab_size, (32, maxlen))
y_train = x_train.sum(axis=1) % 2
x_val, y_val = x_train[:8], y_train[:8]

with strategy.scope():
    inputs = layers.Input(shape=(maxlen,))
    x = TokenAndPositionEmbedding(maxlen, vocab_size, embed_dim)(inputs)
    x = TransformerBlock(embed_dim, num_heads, ff_dim)(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(0.1)(x)
    x = layers.Dense(8, activation="relu")(x)
    x = layers.Dropout(0.1)(x)
    outputs = layers.Dense(2, activation="softmax")(x)
    model = keras.Model(inputs=inputs, outputs=outputs)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

fit(  # ~
    model,  # ~
    x_train,
    y_train,
    batch_size=8,
    epochs=options.steps // 4,
    validation_data=(x_val, y_val),
    callbacks=[log_fit(StepLog(options, strategy), model)],
    save_every_steps=SAVE_EVERY,  # +
)
