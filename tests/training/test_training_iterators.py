"""An iterator of tf.data that ran is replaced, and nobody waits for its destructor."""

from __future__ import annotations

import threading
import time
import weakref

import pytest
from cluster import Cluster
from steered import SteeredRun

from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import JournalKind
from waiting import wait_until

pytestmark = pytest.mark.tensorflow

AGE = 10.8
"""Seconds after which a thread of tf.data sleeps until its iterator is 20.5 s old."""

SHORT = 7.0
"""Seconds. Less than the rest of those, and far more than a restore or an end takes."""


def shuffled():
    import tensorflow as tf

    dataset = tf.data.Dataset.range(10).shuffle(10, seed=7, reshuffle_each_iteration=True)
    return dataset.repeat().map(lambda x: x, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)


def own_state():
    """The input of one worker, and its state, of a model without variables."""
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import WorkerState
    from tfckpt_trainer.training.loop.inputs import Inputs
    from tfckpt_trainer.training.worker_group import WorkerGroup

    strategy = tf.distribute.get_strategy()
    inputs = Inputs(strategy, WorkerGroup(strategy), shuffled())
    return inputs, WorkerState(inputs.iterator)


def take(inputs, count):
    return [int(inputs.next()[0]) for _ in range(count)]


def go_back(state, prefix):
    state.restore(prefix, state.tracking((), ()), state.load_random_state(prefix))


def destroyed_by(iterator):
    """The names of the threads that destroyed the resource of an iterator, once they have."""
    names = []
    weakref.finalize(
        iterator._iterator_resource, lambda: names.append(threading.current_thread().name)
    )
    return names


def test_a_restore_begins_the_iterator_anew_and_destroys_the_old_one_in_a_thread(tmp_path):
    inputs, state = own_state()
    take(inputs, 15)
    state.write(tmp_path / "own")
    names = destroyed_by(inputs.iterator)
    go_back(state, tmp_path / "own")
    assert wait_until(lambda: names, 70, "the end of the old iterator") == ["tfckpt-drop-iterator"]


def test_an_iterator_among_the_objects_of_a_script_begins_anew_too(tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import SharedState, WorkerState

    mine, shared = iter(shuffled()), iter(shuffled())
    own = WorkerState(mine)
    equal = SharedState(tf.Module(), None, {"shared": shared})
    own.write(tmp_path / "own")
    equal.write(tmp_path / "equal")
    expected = [int(next(mine)) for _ in range(30)]
    assert [int(next(shared)) for _ in range(30)] == expected
    names = [destroyed_by(mine), destroyed_by(shared)]
    go_back(own, tmp_path / "own")
    equal.restore(tmp_path / "equal")
    assert [int(next(mine)) for _ in range(30)] == expected
    assert [int(next(shared)) for _ in range(30)] == expected
    wait_until(lambda: all(names), 70, "the end of the old iterators")
    assert names == [["tfckpt-drop-iterator"]] * 2


def test_elements_after_each_restore_are_those_of_an_undisturbed_run(tmp_path):
    undisturbed, _ = own_state()
    expected = take(undisturbed, 80)
    inputs, state = own_state()
    take(inputs, 15)
    state.write(tmp_path / "first")
    # Three epochs further, each with its own order, read ahead beyond the end of the third.
    assert take(inputs, 25) == expected[15:40]
    go_back(state, tmp_path / "first")
    assert take(inputs, 20) == expected[15:35]
    state.write(tmp_path / "second")
    assert take(inputs, 30) == expected[35:65]
    go_back(state, tmp_path / "second")
    assert take(inputs, 45) == expected[35:80]
    go_back(state, tmp_path / "first")
    assert take(inputs, 65) == expected[15:80]


def test_comparing_with_a_checkpoint_leaves_the_input_where_it_is(tmp_path):
    from tfckpt_trainer.training.state.comparison import compare

    expected = take(own_state()[0], 40)
    inputs, state = own_state()
    take(inputs, 5)
    state.write(tmp_path / "own")
    assert take(inputs, 15) == expected[5:20]
    compare(state.tracking((), ()), tmp_path / "own")
    state.load_random_state(tmp_path / "own")
    assert take(inputs, 20) == expected[20:40]


def test_the_position_is_saved_as_a_plain_checkpoint_of_the_iterator(tmp_path):
    import tensorflow as tf

    inputs, state = own_state()
    take(inputs, 15)
    tf.train.Checkpoint(input=inputs.iterator).write(str(tmp_path / "plain"))
    expected = take(inputs, 20)
    go_back_to = tmp_path / "plain"
    state.write(tmp_path / "own")
    for suffix in (".index", ".data-00000-of-00001"):
        (tmp_path / f"own{suffix}").write_bytes((tmp_path / f"plain{suffix}").read_bytes())
    assert tf.train.list_variables(str(go_back_to)) == tf.train.list_variables(
        str(tmp_path / "own")
    )
    go_back(state, tmp_path / "own")
    assert take(inputs, 20) == expected


def test_closing_the_input_destroys_its_iterator_in_a_thread():
    inputs, _ = own_state()
    take(inputs, 1)
    names = destroyed_by(inputs.iterator)
    inputs.close()
    assert wait_until(lambda: names, 70, "the end of the iterator") == ["tfckpt-drop-iterator"]
    inputs.close()


@pytest.mark.parametrize(("strategy", "workers"), [("one-device", 1), ("multi-worker", 2)])
def test_neither_a_restore_nor_the_end_waits_for_a_thread_of_tf_data(tmp_path, strategy, workers):
    arguments = ["--busy-input"]
    with Cluster(tmp_path / "run", "steered.py", arguments, workers, strategy) as cluster:
        steered = SteeredRun(cluster)
        steered.wait_for_step(1)
        saved = steered.ask(CommandKind.SAVE)
        grow_old(steered)
        restored = steered.ask(CommandKind.RESTORE, name=saved.result["name"])
        assert restored.state is CommandState.DONE, restored
        entries = read_entries(steered.run)
        (entry,) = [entry for entry in entries if entry.kind is JournalKind.RESTORE]
        assert entry.details["seconds"] < SHORT
        assert steered.ask(CommandKind.RESUME).state is CommandState.DONE
        steered.progress()
        grow_old(steered)
        steered.ask(CommandKind.STOP)
        stopped = time.monotonic()
        assert cluster.wait() == [0] * workers, cluster.output()
        assert time.monotonic() - stopped < SHORT


def grow_old(steered: SteeredRun) -> None:
    """Pauses training until its iterator has its age; paused, it needs no processor."""
    began = time.monotonic()
    assert steered.ask(CommandKind.PAUSE).state is CommandState.DONE
    wait_until(lambda: time.monotonic() - began > AGE, 2 * AGE, "an age of the iterator")
