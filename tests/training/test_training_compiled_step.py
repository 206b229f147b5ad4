"""A compiled step calls the graph that `tf.function` would find, whatever it is called with."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.tensorflow


class Traced:
    """A compiled step that adds up what its batch holds, and the types that it was traced for."""

    def __init__(self):
        from tfckpt_trainer.training.steps.step_functions import CompiledStep

        self.types = []
        self.step = CompiledStep(self.total)

    def total(self, batch):
        import tensorflow as tf

        parts = tf.nest.flatten(batch, expand_composites=True)
        leaves = [tf.convert_to_tensor(part) for part in parts if part is not None]
        self.types.append([(leaf.dtype.name, leaf.shape.rank) for leaf in leaves])
        return sum(tf.reduce_sum(tf.cast(leaf, tf.int64)) for leaf in leaves)

    def __call__(self, batch):
        return int(self.step(batch))


def batches():
    """Batches of many types, each with what they add up to."""
    import tensorflow as tf

    ones = [tf.ones(shape, tf.int32) for shape in ((2,), (3,), (4, 2))]
    yield from ((batch, int(tf.size(batch))) for batch in ones)
    yield tf.ones((2,), tf.int64), 2
    yield (ones[0], ones[1]), 5
    yield [ones[0], ones[1]], 5
    yield {"a": ones[0], "b": ones[1]}, 5
    yield {"a": ones[1], "c": (ones[0], None)}, 5
    yield tf.ragged.constant([[1], [1, 1]]), 3 + 4
    yield 7, 7


def test_each_type_gets_its_own_graph_in_any_order():
    traced = Traced()
    for times in (1, 2, 3):
        for batch, total in batches():
            assert [traced(batch) for _ in range(times)] == [total] * times


def test_nothing_is_traced_twice():
    import tensorflow as tf

    traced, expected = Traced(), Traced()
    plain = tf.function(expected.total, reduce_retracing=True)
    for size in (2, 2, 2, 3, 3, 3, 2, 4, 4, 5):
        batch = {"a": tf.ones((size,), tf.int32)}
        assert traced(batch) == int(plain(batch)) == size
    assert traced.types == expected.types


def test_a_value_of_python_is_part_of_the_graph_and_not_of_the_type():
    traced = Traced()
    assert [traced(number) for number in (1, 2, 2, 3)] == [1, 2, 2, 3]


def test_another_context_gets_its_own_graph():
    import tensorflow as tf

    from tfckpt_trainer.training.steps.step_functions import CompiledStep

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    step = CompiledStep(lambda batch: batch + float(tf.distribute.has_strategy()))
    batch = tf.constant(0.0)
    outside = [float(step(batch)) for _ in range(3)]
    with strategy.scope():
        within = [float(step(batch)) for _ in range(3)]
    assert (outside, within, float(step(batch))) == ([0.0] * 3, [1.0] * 3, 0.0)


def test_a_script_can_turn_graphs_off_between_two_calls():
    import tensorflow as tf

    from tfckpt_trainer.training.steps.step_functions import CompiledStep

    eager = []
    step = CompiledStep(lambda batch: eager.append(tf.executing_eagerly()))
    batch = tf.constant(0.0)
    step(batch), step(batch), step(batch)
    tf.config.run_functions_eagerly(True)
    try:
        step(batch)
    finally:
        tf.config.run_functions_eagerly(False)
    step(batch)
    assert eager == [False, True]


def test_variables_that_the_first_call_creates_are_those_of_later_calls():
    import tensorflow as tf

    from tfckpt_trainer.training.steps.step_functions import CompiledStep

    made = []

    def count(batch):
        if not made:
            made.append(tf.Variable(0.0))
        return made[0].assign_add(batch)

    step = CompiledStep(count)
    assert [float(step(tf.constant(1.0))) for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_a_graph_can_call_it():
    import tensorflow as tf

    traced = Traced()
    outer = tf.function(lambda: (traced.step(tf.ones((2,))), traced.step(tf.ones((2,)))))
    assert [int(total) for total in outer()] == [2, 2]


def nothing(*_):
    """Takes what a step tells."""


def halved_until_small(value):
    while value > 1.0:
        value = value / 2.0
    return value


@pytest.mark.parametrize("devices", [[], ["CPU:0"]], ids=["one device", "a thread for each"])
def test_of_a_step_the_functions_of_the_script_are_converted_alone(monkeypatch, devices):
    import tensorflow as tf
    from tensorflow.python.autograph.impl import api

    from tfckpt_trainer.training.steps.step_functions import StepFlags, StepFunction, StepHooks

    strategy = tf.distribute.MirroredStrategy(devices) if devices else tf.distribute.get_strategy()
    converted, convert = [], api._convert_actual
    monkeypatch.setattr(
        api, "_convert_actual", lambda *words: converted.append(words[0]) or convert(*words)
    )

    def of_replica(batch):
        if batch > 0.0:
            return halved_until_small(batch)
        return -batch

    def step_for(function):
        hooks = StepHooks(lambda: StepFlags(False, False), nothing, nothing, nothing)
        return StepFunction(strategy, function, hooks)

    def untouched(batch):
        return batch if batch > 0.0 else -batch

    step = step_for(of_replica)
    assert [step(tf.constant(value))["loss"] for value in (6.0, -6.0, 0.5)] == [0.75, 6.0, 0.5]
    assert converted == [of_replica, halved_until_small]
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        step_for(tf.autograph.experimental.do_not_convert(untouched))(tf.constant(1.0))


def test_of_a_model_the_overrides_are_converted_alone(monkeypatch):
    import keras
    import tensorflow as tf
    from tensorflow.python.autograph.impl import api

    from tfckpt_trainer.training.steps.step_functions import CompiledStep, of_script

    converted, convert = [], api._convert_actual
    monkeypatch.setattr(
        api, "_convert_actual", lambda *words: converted.append(words[0]) or convert(*words)
    )

    class Halving(keras.Model):
        def test_step(self, batch):
            return {"loss": batch if batch > 0.0 else -batch}

    kept, changed = keras.Sequential([keras.layers.Dense(1)]), Halving()
    kept.compile(loss="mse")
    pair = (tf.ones((2, 3)), tf.ones((2, 1)))
    CompiledStep(lambda batch: of_script(kept.test_step)(batch))(pair)
    assert converted == []
    step = CompiledStep(lambda batch: of_script(changed.test_step)(batch))
    assert float(step(tf.constant(-2.0))["loss"]) == 2.0
    assert [function.__func__ for function in converted] == [Halving.test_step]
