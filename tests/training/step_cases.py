"""Steps with each kind of state, and what has it. Imports TensorFlow; import it within tests."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from dynamic_tables import DynamicTable, Embedding


class State(tf.Module):
    """Objects with state that a step may use."""

    def __init__(self):
        super().__init__()
        self.noise = tf.random.Generator.from_seed(1)
        self.seeds = keras.random.SeedGenerator(1)
        self.layer = keras.layers.GaussianNoise(0.1)
        self.dropout = keras.layers.Dropout(0.5)
        self.count = tf.Variable(0.0)
        self.metric = keras.metrics.Mean()
        self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
        self.dynamic = DynamicTable()
        self.embedding = Embedding()
        self.iterator = iter(tf.data.Dataset.range(1000))


@tf.function
def compiled():
    return inner()


@tf.function
def inner():
    return tf.random.uniform([])


@tf.function
def increase(variable):
    variable.assign_add(1.0)
    return 0.0


@tf.recompute_grad
def recomputed(x):
    return x * tf.random.normal([])


def gradient_of_recomputed():
    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = recomputed(x)
    return tape.gradient(y, x)


IDS = np.array([[1]], np.int64)
BOX = np.zeros([1, 1, 4], np.float32)
ZEROS = np.zeros([1, 8, 8, 1], np.float32)

DRAWS = {
    "normal": lambda: tf.random.normal([]),
    "uniform": lambda: tf.random.uniform([]),
    "truncated_normal": lambda: tf.random.truncated_normal([]),
    "gamma": lambda: tf.random.gamma([], 1.0),
    "poisson": lambda: tf.random.poisson([], 1.0),
    "categorical": lambda: tf.random.categorical([[0.5, 0.5]], 1),
    "shuffle": lambda: tf.random.shuffle([1.0, 2.0]),
    "uniform_candidate_sampler": lambda: tf.random.uniform_candidate_sampler(IDS, 1, 1, True, 5)[0],
    "sample_distorted_bounding_box": lambda: tf.image.sample_distorted_bounding_box(
        [9, 9, 3], BOX, min_object_covered=0.1
    )[0],
    "fractional_max_pool": lambda: tf.nn.fractional_max_pool(ZEROS, 1.5)[0],
}
"""Each random operation, by the last part of its name."""

WHERE = {
    "a function that a function calls": (compiled, inner.python_function),
    "a branch": lambda: tf.cond(tf.ones([]) > 2, lambda: tf.random.uniform([]), lambda: 0.0),
    "a loop": lambda: tf.while_loop(lambda i: i < 2, lambda i: i + tf.random.uniform([], 1), [0.0]),
    "a map": lambda: tf.map_fn(lambda x: x + tf.random.uniform([]), tf.zeros(2)),
    "a vectorized map": lambda: tf.vectorized_map(lambda x: x + tf.random.normal([]), tf.zeros(2)),
    "a custom gradient": (gradient_of_recomputed, recomputed),
    "a dropout of tf.nn": lambda: tf.nn.dropout(tf.ones(2), 0.5),
    "an augmentation": lambda: tf.image.random_flip_left_right(tf.zeros([2, 2, 3])),
}
"""Where an operation may be: the step, and the function with the line if that is another."""

CHANGED = {
    "tf.random.Generator state.noise": lambda state: state.noise.normal([]),
    "seed generator state.seeds": lambda state: keras.random.normal([], seed=state.seeds),
    "layer state.layer": lambda state: state.layer(tf.zeros(2), training=True),
    "tf.Module state": lambda state: increase(state.count),
    "metric state.metric": lambda state: (state.metric.update_state(1.0), 0.0)[1],
    "lookup table state.table": lambda state: (state.table.insert(IDS, IDS), 0.0)[1],
    "lookup table state.dynamic": lambda state: (state.dynamic.insert(IDS, IDS), 0.0)[1],
    "lookup table state.embedding": lambda state: (state.embedding.insert(IDS, IDS), 0.0)[1],
    "iterator state.iterator": lambda state: next(state.iterator),
}
"""Steps that change an object, by what it is called where it was not passed."""

READ = {
    "tf.Module state": lambda state: state.count + 1.0,
    "lookup table state.table": lambda state: state.table.lookup(IDS),
    "lookup table state.dynamic": lambda state: state.dynamic.lookup(IDS),
    "lookup table state.embedding": lambda state: state.embedding.lookup(IDS),
}
"""Steps that read an object, by what it is called where it was not passed."""

HARMLESS = {
    "stateless": lambda _: tf.random.stateless_normal([], [1, 2]),
    "keras with a number": lambda _: keras.random.normal([], seed=3),
    "inference": lambda state: state.dropout(tf.ones(2), training=False),
    "pure Python": lambda _: tf.numpy_function(np.zeros, [1], tf.float64, stateful=False),
    "pooling with a seed": lambda _: tf.nn.fractional_max_pool(ZEROS, 1.5, seed=3)[0],
    "a check": lambda _: tf.debugging.check_numerics(1.0, "never"),
}

PYTHON = {
    "tf.py_function": lambda: tf.py_function(lambda: 1.0, [], tf.float32),
    "tf.numpy_function": lambda: tf.numpy_function(np.zeros, [1], tf.float64),
}


class Noisy(keras.Model):
    """A model with its own steps, of which each may draw."""

    def __init__(self, noise, held_out_noise):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.blur = keras.layers.GaussianNoise(0.1)
        self.noise = noise
        self.held_out_noise = held_out_noise

    def call(self, x, training=False):
        return self.dense(self.blur(x, training=training))

    def train_step(self, data):
        x, y = data
        return super().train_step((x + self.noise(), y))

    def test_step(self, data):
        x, y = data
        return super().test_step((x + self.held_out_noise(), y))


def zero():
    return tf.zeros([])


def draw():
    return tf.random.normal([])


def draw_held_out():
    return tf.random.normal([])


def compiled_model(noise, held_out_noise):
    """Returns a model that draws or not, by the names of functions of this module."""
    model = Noisy(globals()[noise], globals()[held_out_noise])
    model(tf.zeros([1, 2]))
    model.compile("sgd", "mse")
    return model
