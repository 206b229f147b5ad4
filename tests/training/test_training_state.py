"""Which state is found in what a script passes, and how other programs read it."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.errors import UsageError
from weekly import tries

pytestmark = pytest.mark.tensorflow


def small_model():
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dropout(0.5)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return model, optimizer


def found_in(**passed):
    from tfckpt_trainer.training.checkpoint.state import SharedState

    model = passed.pop("model", None) or small_model()[0]
    optimizer, metrics = passed.pop("optimizer", None), passed.pop("metrics", None)
    return SharedState(model, optimizer, passed, metrics).find()


def test_a_plain_checkpoint_loads_several_models_and_optimizers_by_name(tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import SharedState

    (made, made_optimizer), (judge, judge_optimizer) = small_model(), small_model()
    shared = SharedState(
        {"generator": made, "discriminator": judge},
        {"generator": made_optimizer, "discriminator": judge_optimizer},
        {"noise": tf.random.Generator.from_seed(3)},
    )
    shared.set_step(7)
    shared.write(tmp_path / "saved")

    (own_made, own_made_optimizer), (own_judge, own_judge_optimizer) = small_model(), small_model()
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(
        model=tf.train.Checkpoint(generator=own_made, discriminator=own_judge),
        optimizer={"generator": own_made_optimizer, "discriminator": own_judge_optimizer},
        noise=tf.random.Generator.from_seed(4),
        step=step,
    )
    status = checkpoint.read(str(tmp_path / "saved"))
    status.assert_existing_objects_matched()
    assert int(step) == 7
    for saved, restored in [(made, own_made), (judge, own_judge)]:
        for one, other in zip(saved.weights, restored.weights, strict=True):
            assert np.array_equal(one, other)


def test_what_a_checkpoint_leaves_out_is_read_by_its_path(tmp_path):
    import keras
    import tensorflow as tf

    from tfckpt_trainer.bundle.verify import verify
    from tfckpt_trainer.training.state.values_by_path import (
        compare_values,
        read_values,
        restore_values,
        untracked_variables,
        write_values,
    )

    mean = keras.metrics.Mean()
    mean.update_state([1.0, 5.0])
    found = untracked_variables(found_in(metrics={"loss": mean}))
    prefix = tmp_path / "untracked"
    write_values(prefix, read_values(found))
    assert verify(prefix).findings == ()
    reader = tf.train.load_checkpoint(str(prefix))
    assert reader.get_tensor("metrics/loss/total") == 6.0
    assert reader.get_tensor("metrics/loss/count") == 2.0
    seeds = [key for key in reader.get_variable_to_shape_map() if "seed_generator" in key]
    assert len(seeds) == 1

    mean.reset_state()
    comparison = compare_values(found, prefix)
    assert not comparison.problems
    restore_values(prefix, comparison.matched)
    assert float(mean.result()) == 3.0
    # A variable that did not exist, and one that does not exist any more.
    comparison = compare_values(found[1:], prefix)
    assert comparison.extra == (found[0].path,)
    other = found_in(metrics={"loss": mean, "later": keras.metrics.Mean()})
    missing = compare_values(untracked_variables(other), prefix).missing
    assert set(missing) == {"metrics/later/total", "metrics/later/count"}


@dataclass(slots=True)
class Slots:
    noise: object


class Holder:
    """An object of a script, of no kind that TensorFlow knows."""

    def __init__(self, thing) -> None:
        self.thing = thing
        self.itself = self


def test_state_is_found_at_any_depth_each_once():
    import keras
    import tensorflow as tf

    class Everything(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = keras.layers.GRU(2, dropout=0.1)
            self.cell.build((1, 2, 3))
            self.pair = (keras.layers.Dropout(0.1), keras.metrics.Mean())
            self.named = {"deep": [{"er": keras.layers.GaussianNoise(0.1)}]}
            self.some = {keras.layers.Dropout(0.2, name="b"), keras.layers.Dropout(0.2, name="a")}
            self.holder = Holder(Holder([tf.Variable(1.0)]))
            self.again = self.holder.thing
            self.slots = Slots(keras.layers.Dropout(0.3))
            self.draws = keras.random.SeedGenerator(1)
            self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
            self.numbers = list(range(1000))
            self.function = tf.function(lambda: 1)

    found = found_in(model=Everything())
    paths = {one.path for one in found}
    assert len(paths) == len(found)
    untracked = {one.path for one in found if not one.tracked}
    assert {path for path in untracked if path.startswith("model/cell")}
    assert {
        "model/pair/0/seed_generator/state",
        "model/pair/1/total",
        "model/pair/1/count",
        "model/named/deep/0/er/seed_generator/state",
        "model/some/0/seed_generator/state",
        "model/some/1/seed_generator/state",
        "model/draws/state",
        "model/slots/noise/seed_generator/state",
    } <= untracked
    assert len([path for path in paths if path.endswith("/thing/0")]) == 1
    assert "model/table" in paths - untracked
    seeds = [one.path for one in found if one.is_seed]
    assert len(seeds) == 7
    # The paths are keys of files, so they must be the same in each process.
    assert [one.path for one in found_in(model=Everything())] == [one.path for one in found]


def test_two_objects_never_share_a_path():
    import tensorflow as tf

    one, other = tf.Variable(1.0), tf.Variable(2.0)
    found = found_in(mine={"a/b": one, "a": {"b": other}})
    paths = [found_one.path for found_one in found if found_one.path.startswith("mine")]
    assert sorted(paths) == ["mine/a/b", "mine/a/b'"]
    with pytest.raises(UsageError, match=r"extra\['mine'\] is a dict"):
        found_in(mine={1: one})


def test_an_object_that_cannot_be_saved_does_not_stop_a_save(tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import SavedWorkerState
    from tfckpt_trainer.training.state.measurement import find_differing
    from tfckpt_trainer.training.workers.worker_group import WorkerGroup

    model = tf.Module()
    stateful = tf.data.Dataset.range(9).map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64))
    model.holder = Holder([iter(stateful), iter(tf.data.Dataset.range(9))])
    found = found_in(model=model)
    own = find_differing(WorkerGroup(tf.distribute.get_strategy()), found).paths
    assert own == ["model/holder/thing/1"]
    next(model.holder.thing[1])
    state = SavedWorkerState()
    state.write(tmp_path / "own", found, own)
    next(model.holder.thing[1])
    saved = state.load_random_state(tmp_path / "own")
    assert saved.per_worker == own
    state.restore(tmp_path / "own", state.tracking(found, own), saved)
    assert int(next(model.holder.thing[1])) == 1


class Kind(IntEnum):
    ONE = 1


class Pair(NamedTuple):
    first: int
    second: int


def nested(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


class Counted:
    def __init__(self, state) -> None:
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_objects_that_save_themselves_get_back_equal_values():
    import msgspec
    import tensorflow as tf

    from tfckpt_trainer.training.state.user_objects import UserObjects

    state = {
        "number": 3,
        "large": 1 << 80,
        "float": 0.1,
        "nothing": None,
        "infinite": [float("inf"), float("-inf")],
        "pair": (1, "two", (True,)),
        "by number": {1: "one", (2, 3): "pair"},
        "$": "a key of ours",
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "scalar": np.float32(0.1),
        "tensor": tf.constant([1.0, 2.0], tf.bfloat16),
        "empty": {},
    }
    one = Counted(state)
    states = msgspec.json.decode(msgspec.json.encode(UserObjects({"one": one}).states()))
    UserObjects({"one": one}).load(states)
    assert one.state.keys() == state.keys()
    for name, value in state.items():
        found = one.state[name]
        if name in {"array", "tensor", "scalar"}:
            expected = np.asarray(value)
            assert found.dtype == expected.dtype and found.shape == expected.shape
            assert found.tobytes() == expected.tobytes()
        else:
            assert found == value and type(found) is type(value), name
    nan = Counted({"nan": float("nan")})
    UserObjects({"nan": nan}).load(UserObjects({"nan": nan}).states())
    assert np.isnan(nan.state["nan"])


numbers = st.integers() | st.floats()
scalars = (
    st.none() | st.booleans() | st.text() | st.binary() | numbers
    | st.sampled_from([np.float32(0.1), np.int8(-3), np.bool_(True), np.float16("nan")])
    | st.sampled_from([np.str_("a\0"), np.bytes_(b"a\0"), "\ud800", np.str_("\udcff")])
    | st.sampled_from([np.void(b"ab"), np.array((1, 0.5), [("step", "i4"), ("at", ">f8", 2)])[()]])
)  # fmt: skip
hashable = st.recursive(
    st.booleans() | st.text() | st.integers() | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
values = st.recursive(
    scalars | hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(hashable, max_size=3)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(4, 9))
    ),
    max_leaves=12,
)


def bits(value):
    """A value as text that shows types and bits."""
    if isinstance(value, (np.str_, np.bytes_)):
        return f"{type(value).__name__}:{value!r}:{len(value)}"
    if isinstance(value, np.generic):
        return f"{value.dtype}:{value.tobytes().hex()}"
    if type(value) is float:
        return struct.pack(">d", value).hex()
    if isinstance(value, dict):
        return f"dict{[(bits(key), bits(item)) for key, item in value.items()]}"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}{sorted(map(bits, value))}"
    if isinstance(value, (list, tuple, deque)):
        return f"{type(value).__name__}{list(map(bits, value))}{getattr(value, 'maxlen', '')}"
    return repr(value)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
@tries(400)
def test_values_of_the_script_come_back_with_their_types_and_bits(value):
    from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
    from tfckpt_trainer.rundir.storage.documents import decode, encode
    from tfckpt_trainer.training.checkpoint.state import UserState, WorkerFacts

    saved, loaded = UserState(0), UserState(0)
    saved.shared.update(value)
    fields, _ = saved.collect(3, WorkerFacts(index=0, host="host"))
    given = {"name": "ckpt-3", "step": 3, "branch": 0, "sequence": 1, "trigger": "steps"}
    record = CheckpointRecord(**given, saved_at=0.0, files=[], **fields)
    loaded.restore(decode(encode(record), CheckpointRecord, "record"), 3, worker_restored=True)
    assert bits(loaded.shared) == bits(value)
    # A check compares them, and equal sets may have another order.
    again, _ = loaded.collect(3, WorkerFacts(index=0, host="host"))
    assert again["state"] == fields["state"]


def test_a_check_tells_values_apart_and_no_set_from_an_equal_one():
    from tfckpt_trainer.training.check.digests import _of_values

    apart = [float("nan"), float("inf"), (1,), [1], {1: 2}, {"1": 2}, {1, 2}, deque([1])]
    assert len({_of_values({"a": value}).digest for value in apart}) == len(apart)
    # All want the same place, which the first one gets.
    first, second = {24}, {88}
    first.add(88)
    second.add(24)
    assert list(first) != list(second) and first == second
    assert _of_values({"a": first}) == _of_values({"a": second})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, r"run\.state must be texts, and 1 is none"),
        ({"at": datetime(2026, 1, 1)}, r"run\.state\['at'\] is a datetime, which cannot be saved"),
        ({"a": [{"b": Kind.ONE}]}, r"run\.state\['a'\]\[0\]\['b'\] is a Kind"),
        ({"a": Pair(1, 2)}, r"run\.state\['a'\] is a Pair"),
        ({"a": np.ma.masked_array([1], [True])}, r"run\.state\['a'\] is a MaskedArray"),
        ({"a": np.zeros(1, [("x", object)])}, r"run\.state\['a'\] is a ndarray"),
        ({"deep": nested(500)}, "is nested more than 100 levels deep"),
    ],
)
def test_a_value_that_would_not_come_back_is_refused_by_name(value, message):
    from tfckpt_trainer.training.checkpoint.state import UserState, WorkerFacts

    state = UserState(0)
    state.shared.update(value)
    with pytest.raises(UsageError, match=message):
        state.collect(3, WorkerFacts(index=0, host="host"))


def test_attributes_of_a_callback_come_back_cold_and_in_place():
    import keras

    from tfckpt_trainer.training.keras.callback_state import CallbackState

    class Own(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.counts = {}
            self.pair = self.best = None
            self.kept = np.zeros(2, np.float32)
            self.newest = deque(maxlen=2)
            self.log = open  # Nothing that can be saved.

        def step(self, number):
            self.counts[number] = number / 3
            self.pair = (number, float("nan"))
            self.best = self.kept = self.kept + np.float32(number)
            self.newest.append(number)

        @property
        def own(self):
            return {name: getattr(self, name) for name in ("counts", "pair", "best", "newest")}

    trained = Own()
    state = CallbackState([trained])
    state.begin()
    first = bits(trained.own)
    for number in range(3):
        trained.step(number)
    text, saved = state.text(), bits(trained.own)
    trained.step(9)
    state.restore(text)
    assert bits(trained.own) == saved
    cold = Own()
    again = CallbackState([cold])
    again.begin()
    again.restore(text)
    assert bits(cold.own) == saved
    assert cold.kept.dtype == np.float32 and cold.log is open
    again.restore("")
    assert bits(cold.own) == first


def test_attributes_of_a_callback_that_are_not_saved_are_named_and_left_alone():
    import keras
    import tensorflow as tf

    from tfckpt_trainer.training.keras import callback_state
    from tfckpt_trainer.training.keras.callback_state import CallbackState

    class Own(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.count = 0
            self.rate = tf.Variable(1.0)
            self.averages = [tf.Variable(2.0)]
            self.newest = tf.constant(3.0)
            self.kind = Own  # Holds no state.
            self.big = np.zeros(callback_state._MOST_BYTES + 1, np.uint8)
            self.parts = [np.zeros(callback_state._MOST_BYTES // 2, np.uint8)] * 3

    own = Own()
    own.set_model(small_model()[0])
    state = CallbackState([own, keras.callbacks.EarlyStopping(restore_best_weights=True)])
    state.begin()
    variables = own.rate, own.averages[0]
    own.count = 5
    own.rate.assign(7.0)
    text = state.text()
    own.count = 6
    state.restore(text)
    assert own.count == 5 and (own.rate, own.averages[0]) == variables
    assert [named.partition(" ")[0] for named in state.unsaved()] == [
        f"Own.{name}" for name in ("rate", "averages", "newest", "big", "parts")
    ]
    assert len(text) < 1000


def test_a_value_that_is_too_large_is_refused_before_it_is_encoded(monkeypatch):
    from tfckpt_trainer.training.state import value_encoding

    encode = value_encoding.encode_value
    assert encode([b"ab", np.zeros(2)], "x", most=1000)
    monkeypatch.setattr(value_encoding, "base64", None)
    with pytest.raises(UsageError, match=r"x\['a'\] has more than 1,000 bytes"):
        encode({"a": np.zeros(200)}, "x", most=1000)


@pytest.mark.parametrize(
    ("passed", "message"),
    [
        ({"extra": {"lock": object()}}, r"extra\['lock'\] is a object; expected a trackable"),
        ({"extra": {"none": [1, 2]}}, r"extra\['none'\] is a list"),
        ({"extra": {"own": Counted({"x": object()})}}, r"extra\['own'\].state_dict\(\)\['x'\]"),
        ({"extra": {"step": 3}}, r"extra\['step'\] has the name of an argument"),
        ({"model": {"one": 3}}, r"model\['one'\] is a int; expected an object that TensorFlow"),
        ({"optimizer": "adam"}, "optimizer is a str"),
        ({"metrics": {"loss": 3.0}}, r"metrics\['loss'\] is a float; expected a Keras metric"),
    ],
)
def test_what_would_not_be_saved_is_refused_by_name(passed, message):
    from tfckpt_trainer.training.checkpoint.state import SharedState

    given = {"model": small_model()[0], "optimizer": None, "extra": {}, **passed}
    with pytest.raises(UsageError, match=message):
        SharedState(**given)


def test_parameter_servers_take_one_optimizer():
    from tfckpt_trainer.training.state.passed import only_optimizer

    assert only_optimizer({"one": "adam"}) == only_optimizer("adam") == "adam"
    with pytest.raises(UsageError, match=r"one, two\. With parameter servers"):
        only_optimizer({"one": 1, "two": 2})


@pytest.mark.parametrize("options", [{}, {"background": True, "largest_shard": 8}])
def test_a_variable_that_changes_its_shape_comes_back(make_run, options):
    import tensorflow as tf

    from tfckpt_trainer.training import SaveOptions

    def train(steps):
        seen = tf.Module()
        seen.steps = tf.Variable([-1.0], shape=[None], trainable=False)
        seen.anything = tf.Variable(-1.0, shape=tf.TensorShape(None), trainable=False)
        run = make_run(extra={"seen": seen}, total_steps=steps, saving=SaveOptions(**options))
        for _ in run:
            yield [seen.steps.numpy().tolist(), seen.anything.numpy().tolist()]
            seen.steps.assign(tf.range(run.step + 2.0))
            seen.anything.assign(tf.ones([run.step + 1, 2]))

    first, *_ = train(3)
    assert first == [[-1.0], -1.0]
    assert list(train(4)) == [[[0.0, 1.0, 2.0, 3.0], [[1.0, 1.0]] * 3]]
