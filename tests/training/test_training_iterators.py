"""An iterator of tf.data that ran is replaced, and nobody waits for its destructor."""

from __future__ import annotations

import threading
import weakref

import pytest

from waiting import wait_until

pytestmark = pytest.mark.tensorflow


def shuffled():
    import tensorflow as tf

    dataset = tf.data.Dataset.range(10).shuffle(10, seed=7, reshuffle_each_iteration=True)
    return dataset.repeat().map(lambda x: x, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)


def own_state(dataset=None):
    """The input of one worker, and its state, of a model without variables."""
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import SavedWorkerState
    from tfckpt_trainer.training.steps.inputs import Inputs
    from tfckpt_trainer.training.workers.worker_group import WorkerGroup

    strategy = tf.distribute.get_strategy()
    inputs = Inputs(strategy, WorkerGroup(strategy), shuffled() if dataset is None else dataset)
    return inputs, SavedWorkerState(inputs.state)


def iterator_of(inputs):
    return inputs.state.objects["input"]


def take(inputs, count):
    return [int(inputs.next()[0]) for _ in range(count)]


def go_back(state, prefix):
    return restored(state, prefix, state.load_random_state(prefix))


def restored(state, prefix, random_state):
    return state.restore(prefix, state.tracking((), ()), random_state).done


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
    names = destroyed_by(iterator_of(inputs))
    go_back(state, tmp_path / "own")
    assert wait_until(lambda: names, 70, "the end of the old iterator") == ["tfckpt-drop-iterator"]


def test_an_iterator_among_the_objects_of_a_script_begins_anew_too(tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import SavedWorkerState, SharedState

    mine, shared = iter(shuffled()), iter(shuffled())
    found = [
        one for one in SharedState(tf.Module(), None, {"mine": mine}).find() if one.thing is mine
    ]
    per_worker = [one.path for one in found]
    own = SavedWorkerState()
    equal = SharedState(tf.Module(), None, {"shared": shared})
    own.write(tmp_path / "own", found, per_worker)
    equal.write(tmp_path / "equal")
    expected = [int(next(mine)) for _ in range(30)]
    assert [int(next(shared)) for _ in range(30)] == expected
    names = [destroyed_by(mine), destroyed_by(shared)]
    own.restore(
        tmp_path / "own",
        own.tracking(found, per_worker),
        own.load_random_state(tmp_path / "own"),
    )
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
    tf.train.Checkpoint(**inputs.state.objects).write(str(tmp_path / "plain"))
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


def test_a_position_of_another_dataset_starts_over_and_says_why(tmp_path):
    import tensorflow as tf

    inputs, state = own_state()
    take(inputs, 15)
    state.write(tmp_path / "own")
    other, changed = own_state(tf.data.Dataset.range(100).window(2).map(lambda two: 7))
    (done,) = go_back(changed, tmp_path / "own")
    assert done.startswith("'dataset' starts over, because the dataset is not the one")
    assert take(other, 5) == [7] * 5


def test_skipping_says_how_far_it_is_and_where_the_dataset_ends():
    import tensorflow as tf

    from tfckpt_trainer.training.pipelines.pipeline import Pipeline

    reports = []
    pipeline = Pipeline("words", iter(tf.data.Dataset.range(2500)), skips=True)
    done = pipeline.start_over(2300, reports.append)
    assert done == "'words' starts over, after 2,300 skipped elements"
    assert int(next(pipeline)) == 2300
    assert reports == [
        f"Skips elements of 'words': {number} of 2,300." for number in ("0", "1,000", "2,000")
    ]
    done = pipeline.start_over(3000, reports.append)
    assert done == "'words' ended after 2,500 of 3,000 skipped elements"


def test_closing_the_input_destroys_its_iterator_in_a_thread():
    inputs, _ = own_state()
    take(inputs, 1)
    names = destroyed_by(iterator_of(inputs))
    inputs.close()
    assert wait_until(lambda: names, 70, "the end of the iterator") == ["tfckpt-drop-iterator"]
    inputs.close()
