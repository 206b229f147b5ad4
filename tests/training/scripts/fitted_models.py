"""Trains each kind of model by `keras.Model.fit`, and by a `fit` that is left and resumed.

Prints the history and a checksum of the final weights of both. Under a strategy, it compares with a
`fit` that is not left.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from contextlib import nullcontext
from pathlib import Path

import google_crc32c
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tfckpt_trainer.training import create_strategy, fit

parser = argparse.ArgumentParser()
parser.add_argument("directory", type=Path)
parser.add_argument("--only", nargs="*", help="names of forms")
parser.add_argument("--strategy", help="compares with `fit`, under this strategy")
options = parser.parse_args()

EPOCHS, STEPS, EXAMPLES, BATCH, WIDTH = 2, 3, 22, 8, 6
SAVED, CUT = 2, 2
"""A save within the first epoch, and the step at which the training is left."""

strategy = create_strategy(options.strategy, threads=1) if options.strategy else None
if strategy is None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

random = np.random.RandomState(0)
x = random.randn(EXAMPLES, WIDTH).astype("float32")
y = x[:, :1] - x[:, 1:2]
weights = random.rand(EXAMPLES).astype("float32")
tokens = random.randint(0, 9, (EXAMPLES, 7))
labels = random.randint(0, 3, EXAMPLES)


def dataset(arrays, **arguments):
    """Batches of arrays in any structure."""
    return tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH, **arguments)


def dense(*sizes, **arguments):
    """Layers without an input: the model is built by its first batch."""
    return keras.Sequential([layers.Dense(size, "tanh") for size in sizes], **arguments)


def compiled(model, **arguments):
    """Compiles a model with what most of the forms need."""
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(**{"optimizer": optimizer, "loss": "mse", **arguments})
    return model


def functional():
    """A built model that draws random numbers, with a metric that has a result for each class."""
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, layers.Dense(3, "softmax")(layers.Dropout(0.3)(inputs)))
    return compiled(
        model,
        loss="categorical_crossentropy",
        metrics=[keras.metrics.F1Score()],
        weighted_metrics=["mae"],
    )


class Subclassed(keras.Model):
    """A model that is built by its first batch, in part by `training` alone."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = dense(5, 4), layers.Dense(1)
        self.only_in_training = layers.Dense(4)

    def call(self, inputs, training=False):
        """Adds a layer in training."""
        hidden = self.hidden(inputs)
        return self.out(hidden + self.only_in_training(hidden) if training else hidden)


class Attention(keras.Model):
    """A model whose layers draw the seeds of their initial values when they are built."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(9, 4)
        self.attention = layers.MultiHeadAttention(2, 2, dropout=0.2)
        self.out = layers.Dense(3)

    def call(self, tokens, training=False):
        """Returns logits of classes."""
        hidden = self.embedding(tokens)
        hidden = self.attention(hidden, hidden, training=training)
        return self.out(ops.mean(hidden, axis=1))


class Pairs(keras.Model):
    """Trains on pairs by a loss of its own."""

    def __init__(self):
        super().__init__()
        self.encoder = dense(5, 4)

    def call(self, inputs):
        """Returns an embedding."""
        return self.encoder(inputs)

    def train_step(self, data):
        """Brings the embeddings of a pair together."""
        first, second = data
        with tf.GradientTape() as tape:
            similar = ops.matmul(self(first, training=True), ops.transpose(self(second)))
            loss = self.compute_loss(y=ops.arange(ops.shape(similar)[0]), y_pred=similar)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            metric.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}


class OutsideMetrics(keras.Model):
    """Its metrics are returned by a property, and held by nothing that it holds."""

    def __init__(self, own):
        super().__init__()
        self.hidden, self.metrics_of_script = dense(3, 1), own

    def call(self, inputs):
        """Returns a prediction."""
        return self.hidden(inputs)

    def train_step(self, data):
        """Updates the metrics."""
        inputs, targets = data
        with tf.GradientTape() as tape:
            predicted = self(inputs, training=True)
            loss = ops.mean(ops.square(predicted - targets))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        mean, score = self.metrics
        mean.update_state(loss)
        score.update_state(targets, predicted)
        return {"loss": mean.result(), "score": score.result()}

    @property
    def metrics(self):
        """The metrics that `fit` resets."""
        return self.metrics_of_script()


def outside_metrics():
    """A model whose metrics are in the closure of a function; one builds itself when updated."""
    own = [keras.metrics.Mean(), keras.metrics.R2Score()]
    return compiled(OutsideMetrics(lambda: own), loss=None)


class Gan(keras.Model):
    """Two models without inputs and two optimizers that nothing has built; it has no `call`."""

    def __init__(self):
        super().__init__()
        self.maker, self.judge = dense(4, WIDTH), dense(4, 1)
        self.noise = keras.random.SeedGenerator(5)

    def compile(self):
        """Creates an optimizer for each model."""
        super().compile()
        self.of_maker = keras.optimizers.SGD(0.01, momentum=0.9)
        self.of_judge = keras.optimizers.SGD(0.1)
        self.mean_of_judge = keras.metrics.Mean("judged")

    def train_step(self, real):
        """Trains the one, and then the other."""
        noise = keras.random.normal((ops.shape(real)[0], 3), seed=self.noise)
        with tf.GradientTape(persistent=True) as tape:
            judged = self.judge(self.maker(noise, training=True))
            worth = ops.mean(judged) - ops.mean(self.judge(real))
            lost = -ops.mean(judged)
        for loss, model, optimizer in (
            (worth, self.judge, self.of_judge),
            (lost, self.maker, self.of_maker),
        ):
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
        self.mean_of_judge.update_state(worth)
        return {"maker": lost, "judge": self.mean_of_judge.result()}


class InDictionaries(keras.Model):
    """A batch and an output that are dictionaries, with a loss for each output."""

    def __init__(self):
        super().__init__()
        self.parts = {name: layers.Dense(2) for name in ("a", "b")}

    def call(self, inputs):
        """Returns one output for each part."""
        return {name: part(inputs[name]) for name, part in self.parts.items()}


class Eager(Subclassed):
    """A step that needs the values of tensors."""

    def train_step(self, data):
        """Scales the inputs by a number of Python."""
        inputs, targets = data
        largest = float(np.abs(inputs.numpy()).max())
        return super().train_step((inputs / largest, targets))


class GivenByCallback(Attention):
    """A step that needs what a callback sets at the start of the training."""

    def train_step(self, data):
        """Weights the examples."""
        return super().train_step((*data, self.weight * ops.ones_like(data[1])))


class SetsWeight(keras.callbacks.Callback):
    """Gives the model what its step needs."""

    def on_train_begin(self, logs=None):
        """Sets it."""
        self.model.weight = 2


def ragged():
    """Rows of tokens of different lengths."""
    rows = tf.RaggedTensor.from_tensor(tokens, padding=8)
    return tf.data.Dataset.from_tensor_slices((rows, labels)).batch(BATCH)


def sparse():
    """Mostly zeros, as a sparse tensor."""
    return tf.sparse.from_dense(np.where(x > 0.5, x, 0))


def stateful():
    """A recurrent model that keeps its state from batch to batch."""
    model = keras.Sequential(
        [keras.Input((2, 3), batch_size=2), layers.SimpleRNN(3, stateful=True), layers.Dense(1)]
    )
    return compiled(model)


def of_classes(model, **arguments):
    """Compiles a model that returns logits."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return compiled(model, loss=loss, **arguments)


def embedded():
    """Averages the embeddings of tokens."""
    return of_classes(
        keras.Sequential([layers.Embedding(10, 4), layers.GlobalAveragePooling1D(), dense(3)])
    )


arrays = {"x": x, "y": y, "batch_size": BATCH}
FORMS = {
    "functional, weights": lambda: (
        functional(),
        {**arrays, "y": np.eye(3)[labels], "sample_weight": weights},
    ),
    "subclass, not built": lambda: (
        compiled(Subclassed()),
        {**arrays, "validation_data": (x[:11], y[:11])},
    ),
    "layers with seeds, step that needs a callback": lambda: (
        of_classes(GivenByCallback()),
        {"x": dataset((tokens, labels), drop_remainder=True), "callbacks": [SetsWeight()]},
    ),
    "pairs in a tuple": lambda: (
        of_classes(Pairs()),
        {"x": dataset((x, x[::-1]))},
    ),
    "metrics of a property, loss=None": lambda: (outside_metrics(), {"x": dataset((x, y))}),
    "two optimizers, no call": lambda: (gan(), {"x": dataset(x)}),
    "dictionaries, one tensor is sparse": lambda: (
        compiled(InDictionaries(), metrics={"a": ["mae"], "b": ["mse"]}),
        {"x": dataset(({"a": sparse(), "b": x[:, :3]}, {"a": y, "b": y}))},
    ),
    "ragged, without a length": lambda: (
        embedded(),
        {"x": ragged().filter(lambda *_: True).repeat(), "steps_per_epoch": STEPS},
    ),
    "stateful": lambda: (
        stateful(),
        {"x": x[:6].reshape(6, 2, 3), "y": y[:6], "batch_size": 2},
    ),
    "run_eagerly, not built": lambda: (
        compiled(Subclassed(), run_eagerly=True),
        {"x": dataset((x, y))},
    ),
    "run_eagerly, values in the step": lambda: (
        eager_and_built(),
        {"x": dataset((x, y))},
    ),
}


def gan():
    """A compiled GAN."""
    made = Gan()
    made.compile()
    return made


def eager_and_built():
    """A compiled model whose variables all exist, because its step cannot be traced."""
    made = compiled(Eager(), run_eagerly=True)
    made(x[:1], training=True)
    return made


class LeftError(Exception):
    """Leaves the training."""


class LeaveAt(keras.callbacks.Callback):
    """Leaves the training before a step."""

    def __init__(self, step):
        super().__init__()
        self.steps_left = step

    def on_train_batch_begin(self, batch, logs=None):
        """Counts."""
        self.steps_left -= 1
        if self.steps_left < 0:
            raise LeftError


def trained(name, run_dir=None, *, seed=3, leave_at=None):
    """Trains a new model of a form; returns its history and a checksum of its weights."""
    keras.utils.set_random_seed(seed)
    with strategy.scope() if strategy else nullcontext():
        model, arguments = FORMS[name]()
    arguments = {"epochs": EPOCHS, "verbose": 0, "shuffle": False, **arguments}
    if run_dir is None:
        history = model.fit(**arguments)
    else:
        if leave_at is not None:
            arguments["callbacks"] = [*arguments.get("callbacks", []), LeaveAt(leave_at)]
        history = fit(model, run_dir=run_dir, save_every_steps=SAVED, **arguments)
    digest = 0
    for variable in model.weights:
        digest = google_crc32c.extend(digest, variable.numpy().tobytes())
    values = {name: np.asarray(given).tolist() for name, given in history.history.items()}
    return {"epochs": history.epoch, "history": values, "weights": digest}


def resumed(name, run_dir):
    """Leaves the training after a save, and trains another model to the end."""
    try:
        trained(name, run_dir, leave_at=CUT)
    except LeftError:
        return trained(name, run_dir, seed=99)
    return "was not left"


def attempted(train, *arguments):
    """Trains; returns the error if it fails."""
    try:
        return train(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# Each `fit` looks through all objects for untracked state; those of the imports are none.
gc.collect()
gc.freeze()
for number, name in enumerate(FORMS):
    if options.only and name not in options.only:
        continue
    whole = options.directory / f"whole-{number}" if strategy else None
    case = {
        "name": name,
        "expected": attempted(trained, name, whole),
        "resumed": attempted(resumed, name, options.directory / f"left-{number}"),
    }
    print("case", json.dumps(case), flush=True)
# Keras's own threads for data may still run, and what is compared is printed.
os._exit(0)
