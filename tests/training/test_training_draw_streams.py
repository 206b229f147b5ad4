"""Draws by the step have TensorFlow's distributions, and are independent; others come back."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest
from test_training_quick_check import submit

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.exactness import ExactnessLevel
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start

pytestmark = pytest.mark.tensorflow

DRAWS = 20_000

KOLMOGOROV = 1.95
"""The bound of the scaled distance of two samples of one distribution, with probability 0.999."""

DISTRIBUTIONS = {
    "normal": lambda tf, keras: tf.random.normal([DRAWS], 1.0, 2.0),
    "uniform": lambda tf, keras: tf.random.uniform([DRAWS], -1.0, 3.0),
    "integers": lambda tf, keras: tf.random.uniform([DRAWS], 0, 1000, tf.int32),
    "truncated normal": lambda tf, keras: tf.random.truncated_normal([DRAWS]),
    "gamma": lambda tf, keras: tf.reshape(
        tf.random.gamma([DRAWS // 2], [0.5, 3.0], beta=2.0), [-1]
    ),
    "poisson": lambda tf, keras: tf.reshape(tf.random.poisson([DRAWS // 2], [3.0, 40.0]), [-1]),
    "categorical": lambda tf, keras: tf.random.categorical([[0.0, 1.0, 2.0]], DRAWS)[0],
    "shuffle": lambda tf, keras: tf.random.shuffle(tf.range(DRAWS))[:1000],
    "dropout": lambda tf, keras: tf.nn.dropout(tf.ones([DRAWS]), 0.3),
    "half": lambda tf, keras: tf.random.normal([DRAWS], dtype=tf.float16),
    "double": lambda tf, keras: tf.random.uniform([DRAWS], dtype=tf.float64),
    "raw": lambda tf, keras: tf.raw_ops.RandomStandardNormal(shape=[DRAWS], dtype=tf.float32),
    "parameterized truncated normal": lambda tf, keras: tf.raw_ops.ParameterizedTruncatedNormal(
        shape=[2, DRAWS // 2], means=[0.0, 9.0], stdevs=[1.0, 2.0], minvals=[-1.0], maxvals=[10.0]
    )[0],
    "boxes": lambda tf, keras: tf.map_fn(
        lambda _: tf.image.sample_distorted_bounding_box(
            [50, 50, 3], tf.zeros([1, 0, 4]), seed=1, use_image_if_no_bounding_boxes=True
        )[0][0],
        tf.range(300),
    ),
    "crops": lambda tf, keras: tf.map_fn(
        lambda _: tf.image.random_crop(tf.range(1000), [1])[0], tf.range(500)
    ),
    "keras": lambda tf, keras: keras.random.gamma([DRAWS], 2.0),
}
"""What draws in the same way with and without a seed of the run."""


@pytest.fixture
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture
def keras():
    import keras

    return keras


def started(seed=7, worker=0):
    """Draws by the step, before training."""
    from tfckpt_trainer.training.draws.by_step import DrawsByStep

    return DrawsByStep(seed, worker)


@pytest.fixture
def draws():
    """Draws by the step, at step 1."""
    by_step = started()
    by_step.start_step(1)
    yield by_step
    by_step.close()


def distance(one, other):
    """The distance of Kolmogorov and Smirnov of two samples, scaled to their sizes."""
    one, other = np.sort(np.ravel(one)), np.sort(np.ravel(other))
    values = np.concatenate([one, other])
    parts = [np.searchsorted(sample, values, side="right") / sample.size for sample in (one, other)]
    scale = math.sqrt(one.size * other.size / (one.size + other.size))
    return scale * np.max(np.abs(parts[0] - parts[1]))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_that_of_tensorflow(tf, keras, name):
    draw = partial(DISTRIBUTIONS[name], tf, keras)
    keras.utils.set_random_seed(5)
    expected = tf.function(draw)().numpy()
    by_step = started()
    by_step.start_step(1)
    try:
        traced = tf.function(draw)
        for found in (draw().numpy(), traced().numpy()):
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert not np.array_equal(found, expected)
            found, drawn = found.astype(float), expected.astype(float)
            assert distance(found, drawn) < KOLMOGOROV
            assert abs(found.mean() - drawn.mean()) < 7 * drawn.std() / math.sqrt(drawn.size)
            assert found.std() == pytest.approx(drawn.std(), rel=0.1)
    finally:
        by_step.close()
    kinds = operation_types(traced.get_concrete_function().graph)
    assert {kind for kind in kinds if has_random_state(kind)} == set()


def operation_types(graph):
    """The types of all operations of a graph and of the functions that it calls."""
    definition = graph.as_graph_def()
    nodes = [*definition.node]
    for function in definition.library.function:
        nodes += function.node_def
    return {node.op for node in nodes}


def has_random_state(kind):
    """Whether an operation draws from a state of its own."""
    draws = "Random" in kind or kind.endswith(("Multinomial", "TruncatedNormal", "BoxV2"))
    return draws and not kind.startswith("Stateless")


def test_draws_are_independent_of_each_other(tf, keras, draws):
    size = 4000

    @tf.function
    def nested():
        return tf.random.normal([size])

    @tf.function(jit_compile=True)
    def compiled():
        return tf.random.normal([size])

    @tf.function
    def step(branch):
        looped = tf.TensorArray(tf.float32, 3)
        for index in tf.range(3):
            looped = looped.write(index, tf.random.normal([size]))
        chosen = tf.cond(
            branch, lambda: tf.random.normal([size]), lambda: tf.random.normal([size], 1.0) - 1.0
        )
        each = tf.range(3)
        rows = [
            looped.stack(),
            tf.map_fn(lambda _: tf.random.normal([size]), each, fn_output_signature=tf.float32),
            tf.vectorized_map(lambda _: tf.random.normal([size]), each),
            tf.stack([nested(), nested(), compiled(), compiled(), chosen]),
            tf.stack([tf.random.normal([size]), tf.random.truncated_normal([size])]),
            tf.stack([keras.random.normal([size]), keras.random.normal([size])]),
            tf.stack([tf.random.normal([size], seed=number) for number in range(2)]),
        ]
        return tf.concat(rows, axis=0)

    drawn = []
    for number in range(3):
        draws.start_step(number)
        # A step may be called more than once, and what is between steps draws eagerly.
        drawn += [
            *step(tf.constant(number > 0)).numpy(),
            *step(tf.constant(True)).numpy(),
            tf.random.normal([size]).numpy(),
        ]
    other_seed, other_worker = started(seed=8), started(worker=1)
    for other in (other_seed, other_worker):
        other.start_step(1)
        drawn += [*step(tf.constant(True)).numpy(), tf.random.normal([size]).numpy()]
        other.close()
    correlations = np.corrcoef(drawn)
    np.fill_diagonal(correlations, 0)
    # Of 16,000 pairs, one in 1,000 such tests has a pair beyond five standard deviations.
    assert np.abs(correlations).max() < 5.5 / math.sqrt(size)


def test_a_step_draws_the_same_whatever_was_drawn_before(tf, keras, draws):
    @tf.function
    def step():
        return [tf.random.normal([2]), tf.random.uniform([2], seed=3), keras.random.normal([2])]

    def drawn():
        return [[one.numpy().tolist() for one in [*step(), tf.random.normal([2])]] for _ in "ab"]

    draws.start_step(5)
    first = drawn()
    draws.start_step(6)
    assert drawn() != first
    tf.random.normal([9])
    draws.start_step(5)
    assert drawn() == first


@pytest.mark.parametrize("traced", [False, True])
def test_a_sampler_draws_on_as_the_docs_say(tf, draws, traced):
    def sampled():
        return tf.random.uniform_candidate_sampler([[1]], 1, 20, True, 100_000)[0]

    draw = tf.function(sampled) if traced else sampled

    def drawn():
        draws.start_step(5)
        return draw().numpy().tolist()

    assert drawn() != drawn()


def test_operations_with_the_same_seed_draw_the_same(tf, draws):
    """TensorFlow documents it, and scripts crop an image and its mask alike by it."""

    @tf.function
    def cropped():
        return [tf.image.random_crop(tf.range(10_000), [1], seed=seed)[0] for seed in (3, 3, 4)]

    for _ in range(2):
        image, mask, other = cropped()
        assert int(image) == int(mask) != int(other)


def test_a_function_that_one_run_traced_draws_by_the_step_of_the_next(tf):
    function = tf.function(lambda: tf.random.normal([3]))

    def drawn(seed):
        run = started(seed=seed)
        run.start_step(4)
        found = function().numpy().tolist()
        run.close()
        return found

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize("traced", [False, True])
def test_what_is_computed_again_for_a_gradient_draws_the_same(tf, draws, traced):
    # No variable: TensorFlow keeps a traced function with a gradient of its own, and the variables
    # in it, to the end of the process. Runs of later tests would be told that they lack it.
    weight = tf.constant(1.0)

    def block(x, weight):
        return x * weight * tf.random.normal([5])

    def gradient():
        again = tf.recompute_grad(block)
        with tf.GradientTape() as tape:
            tape.watch(weight)
            y = again(again(tf.ones([5]), weight), weight)
        after = tf.random.normal([])
        # The derivative by the weight, of which `y` has the second power, is 2 y.
        return tape.gradient(y, weight), 2 * tf.reduce_sum(y), after, tf.random.normal([])

    computed, expected, *others = (tf.function(gradient) if traced else gradient)()
    assert float(computed) == pytest.approx(float(expected), rel=1e-5)
    assert float(others[0]) != float(others[1])


def test_datasets_and_other_graphs_are_left_to_tensorflow(tf, draws):
    data = tf.data.Dataset.range(3).map(lambda _: tf.random.uniform([]))
    function = data._functions()[0].function.graph
    assert "RandomUniform" in operation_types(function)
    with tf.Graph().as_default() as graph:
        tf.random.normal([2])
    assert "RandomStandardNormal" in operation_types(graph)


def test_without_a_run_tensorflow_draws_as_before(tf):
    before = tf.random.set_seed(5) or tf.random.normal([3]).numpy().tolist()
    functions = [tf.raw_ops.RandomUniform, tf.recompute_grad]
    one, other = started(seed=1), started(seed=2)
    one.close()
    assert [tf.raw_ops.RandomUniform, tf.recompute_grad] != functions
    other.close()
    other.close()
    assert [tf.raw_ops.RandomUniform, tf.recompute_grad] == functions
    tf.random.set_seed(5)
    assert tf.random.normal([3]).numpy().tolist() == before


def test_a_release_without_a_function_is_refused(tf, monkeypatch):
    from tensorflow.python.ops import gen_random_ops

    original = tf.raw_ops.RandomUniform
    monkeypatch.delattr(gen_random_ops, "random_shuffle")
    with pytest.raises(UsageError, match="random_seed does not support TensorFlow"):
        started()
    assert tf.raw_ops.RandomUniform is original


@pytest.mark.parametrize("seed", ["7", 1.5, True])
def test_a_seed_that_is_no_integer_is_refused(make_run, seed):
    with pytest.raises(UsageError, match="it must be an integer, or None"):
        make_run(random_seed=seed)


def test_what_python_and_numpy_draw_comes_back_with_a_checkpoint(make_run):
    def train(total_steps, go_back_at=None):
        run, drawn = make_run(total_steps=total_steps, save_every_steps=4), []
        for step in run:
            drawn.append((step, random.random(), np.random.rand()))
            if step == go_back_at:
                submit(run, CommandKind.RESTORE, name="ckpt-4")
                go_back_at = None
        return run, drawn

    run, drawn = train(9, go_back_at=6)
    first, in_place = drawn[:7], drawn[7:]
    assert in_place[:3] == first[4:]
    directory = RunDirectory(run.directory)
    # The loop draws without `run.function`.
    assert load(directory.run_file, RunInfo).exactness.level is ExactnessLevel.UNKNOWN
    random.seed(1)
    np.random.seed(1)
    choose_start(directory, "ckpt-4", through=FrontEnd.COMMAND_LINE)
    assert train(9)[1] == in_place
