"""Whatever the input pipeline is, a run saves what is possible and says what is missing."""

from __future__ import annotations

import json
import time

import pytest
from steered import SteeredRun
from training_cluster import SCRIPTS, Cluster

from distribution import is_weekly
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

EXACT = ["plain", "stateless", "long", "sampled", "checked", "watched", "static_table"]

AT_POSITION = {
    "random_image": "a random operation in map (RandomUniform, pipelines.py line ",
    "compiled": "a random operation in map (RandomUniform, pipelines.py line ",
    "parallel": "a random operation in map (RandomUniform, pipelines.py line ",
    "shuffled": "a random operation in map (RandomUniform, pipelines.py line ",
    "keras_layer": "a variable that changes, such as the seed of a Keras layer, in map",
    "whole_layer": "the Keras layer RandomBrightness in map",
    "generator": "a tf.random.Generator in map",
    "changed_variable": "a variable that changes",
    "captured_map": "a random operation in map (RandomUniform, pipelines.py line ",
    "box": "a random operation in map (SampleDistortedBoundingBoxV2, pipelines.py line ",
    "behind_a_check": "a random operation in map (RandomUniform, pipelines.py line ",
    "hidden_check": "the operation CheckNumerics",
    "read_variable": "a variable in map",
    "mutable_table": "a table that can change in map (pipelines.py line ",
    "rejection_resample": "rejection_resample, which draws random numbers",
}

IN_PYTHON = {
    "py_function": "tf.py_function in map (pipelines.py line ",
    "numpy_function": "tf.numpy_function in map (pipelines.py line ",
}

COUNTED = {
    "from_generator": "from_generator",
    "nested_generator": "from_generator",
    "shuffled_generator": "from_generator",
    "captured_generator": "from_generator",
    "captured_on_device": "prefetch_to_device or copy_to_device",
    "prefetch_to_device": "prefetch_to_device or copy_to_device",
}

ALWAYS_EQUAL = {
    "hidden_check", "read_variable", "mutable_table", "py_function", "numpy_function"
}  # fmt: skip


TRAINED = {
    *("plain", "random_image", "py_function", "from_generator", "prefetch_to_device"),
    *("late", "two"),
}
"""Those with which a run is trained at each change; of the others it is asked what they are."""


def names(*pipelines):
    """Returns the names of pipelines for `pytest.mark.parametrize`."""
    trained = [name for name in pipelines if name in TRAINED]
    return [*trained, *weekly(*(name for name in pipelines if name not in TRAINED))]


def causes(pipelines):
    """Returns their names with what makes them inexact, likewise."""
    trained = [one for one in pipelines.items() if one[0] in TRAINED]
    return [*trained, *weekly(*(one for one in pipelines.items() if one[0] not in TRAINED))]


@pytest.fixture(scope="module")
def results(request, tmp_path_factory, selected):
    """What each pipeline of `pipelines.py` saved, and how it was resumed."""
    directory = tmp_path_factory.mktemp("pipelines")
    done = run_with_tensorflow(
        SCRIPTS / "pipelines.py",
        *("--directory", directory, "--each", 1 if is_weekly(request.config) else 3),
        *("--only", *selected),
        TFCKPT_WORKER_INDEX="0",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((directory / "results.json").read_text())


def indexes(batches):
    """The part of each batch that depends on the position alone."""
    return [batch[0] if isinstance(batch, list) else batch for batch in batches]


def messages(result, kind, event_log="journal"):
    found = [message for entry, message, _ in result[event_log] if entry == kind]
    # The pipelines of these scripts have Keras layers that no run is given, and no save option.
    return [message for message in found if not message.startswith(("Not saved", "Saves every"))]


def of(results, name):
    assert "error" not in results[name], results[name]
    return results[name]


def test_what_can_be_saved_of_a_pipeline_is_known_before_it_is_read(results):
    for name in {*EXACT, *AT_POSITION, *IN_PYTHON, *COUNTED} - TRAINED:
        facts = results["facts"][name]
        known = {**AT_POSITION, **COUNTED}.get(name)
        expected = "position" if name in AT_POSITION | IN_PYTHON else "exact"
        assert facts["position"] == ("count" if name in COUNTED else expected), name
        for told, beginning in (("causes", known), ("python", IN_PYTHON.get(name))):
            assert len(facts[told]) == (beginning is not None), name
            assert all(text.startswith(beginning) for text in facts[told]), name
        assert len(facts["remedies"]) == len(facts["causes"] + facts["python"]), name


@pytest.mark.parametrize("name", names(*EXACT, *AT_POSITION, *IN_PYTHON, *COUNTED, "two"))
def test_every_pipeline_is_saved_at_the_end_of_the_run(results, name):
    result = of(results, name)
    assert result["saved"] == ["ckpt-5", "ckpt-3"]
    assert {"model", "step", "random state"} <= set(result["contents"])


@pytest.mark.parametrize("name", names(*EXACT))
def test_an_exact_pipeline_continues_and_nothing_is_said_to_be_missing(results, name):
    result = of(results, name)
    assert result["batches"] == result["undisturbed"]
    assert [pipeline["position"] for pipeline in result["exactness"]["inputs"]] == ["exact"]
    # These loops read their input alone, without run.function.
    assert result["exactness"]["level"] == "unknown"
    (reason,) = result["exactness"]["reasons"]
    assert reason.startswith("the loop does not use run.function")
    assert not messages(result, "note") and result["refusal"] == ""


@pytest.mark.parametrize("name", names(*AT_POSITION, *IN_PYTHON))
def test_a_stateful_pipeline_continues_at_its_position(results, name):
    result = of(results, name)
    if name != "whole_layer":
        assert indexes(result["batches"]) == indexes(result["undisturbed"])
    if name in ALWAYS_EQUAL:
        assert result["batches"] == result["undisturbed"]
    (pipeline,) = result["exactness"]["inputs"]
    assert pipeline["position"] == "position"
    assert "input position" in result["contents"]
    assert "its position, but the state of its operations is not" in messages(result, "start")[1]


def test_an_order_that_another_process_would_not_repeat_is_not_called_exact(results):
    shuffle, any_order = ["a repeated shuffle without a seed"], ["deterministic=False"]
    assert results["orders"] == {
        "repeated": shuffle,
        "random": ["a repeated Dataset.random without a seed"],
        "seeded": [],
        "one epoch": [],
        "behind": [],
        "map": any_order,
        "option": any_order,
        "interleave": any_order,
        "interleave in order": [],
        "in a function": any_order,
        "captured": any_order,
        "large arrays": ["a parallel interleave of large arrays, whose order is not known"],
    }


SEPARATED = {
    "smaller last batch": "batch",
    "padded_batch": "padded_batch",
    "enumerate": "zip",
    "equal batches, prefetch": "prefetch",
}
"""Ways to repeat a shuffle whose next order may be lost, and the part that loses it."""


def test_a_shuffle_whose_next_order_may_be_lost_is_not_called_exact(results):
    restored = results["restored"]
    causes = {name: causes for name, (causes, _) in restored.items() if causes}
    assert causes == {
        name: [f"a shuffle that {part} separates from repeat"] for name, part in SEPARATED.items()
    }
    changed = {name for name, (_, changed) in restored.items() if changed}
    # Whether the others lose it depends on how far TensorFlow has read ahead.
    assert {"smaller last batch", "padded_batch"} <= changed <= set(SEPARATED)


@pytest.mark.parametrize("name", names(*COUNTED))
def test_a_pipeline_that_can_only_be_counted_starts_over(results, name):
    result = of(results, name)
    assert result["batches"] == result["undisturbed"][:3] + result["undisturbed"][:2]
    (pipeline,) = result["exactness"]["inputs"]
    assert pipeline["position"] == "count"
    assert "number of elements read" in result["contents"]
    assert messages(result, "start")[1].endswith(" The input pipeline 'dataset' starts over.")


@pytest.mark.parametrize(
    "name", names("from_generator", "shuffled_generator", "prefetch_to_device", "two")
)
def test_it_skips_what_was_read_if_that_is_wanted(results, name):
    result = of(results, name)
    assert result["skipped"] == result["undisturbed"]
    restored = messages(result, "start", "skipped_journal")[1]
    assert restored.endswith("starts over, after 3 skipped elements.")


@pytest.mark.parametrize(("name", "cause"), causes(AT_POSITION | COUNTED))
def test_the_cause_is_named_in_the_journal_and_where_exactness_is_required(results, name, cause):
    result = of(results, name)
    because = f"not possible because the input pipeline 'dataset' uses {cause}"
    # Once for each start.
    notes = messages(result, "note")
    assert [because in note for note in notes] == [True, True], "\n".join(notes)
    assert f"the input pipeline 'dataset' uses {cause}" in result["refusal"]
    verbs = ("Use", "Apply", "Sample", "Read", "Remove")
    assert any(f". {verb} " in result["refusal"] for verb in verbs), result["refusal"]


@pytest.mark.parametrize(("name", "calls"), causes(IN_PYTHON))
def test_nothing_is_said_of_python_in_a_pipeline(results, name, calls):
    result = of(results, name)
    assert result["exactness"]["level"] == "unknown"
    reason = result["exactness"]["reasons"][0]
    assert reason.startswith(f"the input pipeline 'dataset' calls Python with {calls}")
    assert not messages(result, "note") and result["refusal"] == ""


@pytest.mark.parametrize(
    ("name", "position", "named"),
    [("late", "count", "GeneratorDataset"), *weekly(("late_map", "position", "RandomUniform"))],
)
def test_what_only_the_first_save_notices_is_saved_as_far_as_possible(
    results, name, position, named
):
    result = of(results, name)
    assert result["saved"] == ["ckpt-5", "ckpt-3"]
    (pipeline,) = result["exactness"]["inputs"]
    assert pipeline["position"] == position
    assert pipeline["causes"] == [f"the operation {named}"]
    told = "Not saved", "Saves every"
    kinds = [entry for entry, text, _ in result["journal"] if not text.startswith(told)]
    assert kinds[:3] == ["start", "save", "note"]
    restored = result["batches"][3:]
    expected = result["undisturbed"][:2] if position == "count" else result["undisturbed"][3:]
    assert indexes(restored) == indexes(expected)


def test_pipelines_of_a_dictionary_have_positions_of_their_own(results):
    result = of(results, "two")
    first = {"exact": 4, "counted": 0}
    assert result["batches"][0] == result["undisturbed"][0] == first
    resumed, undisturbed = result["batches"][3:], result["undisturbed"]
    assert [batch["exact"] for batch in resumed] == [b["exact"] for b in undisturbed[3:]]
    assert [batch["counted"] for batch in resumed] == [b["counted"] for b in undisturbed[:2]]
    positions = {one["name"]: one["position"] for one in result["exactness"]["inputs"]}
    assert positions == {"exact": "exact", "counted": "count"}
    assert "'counted'" in result["refusal"] and "'exact'" not in result["refusal"]


def test_iterators_among_the_objects_of_a_script_are_saved_or_refused_at_the_start(results):
    own = of(results, "own")
    (images,) = own["exactness"]["inputs"]
    assert (images["name"], images["position"]) == ("images", "position")
    assert own["refusal"].startswith(
        "The position of the iterator 'words' cannot be saved, because it uses from_generator. "
    )


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("multi-worker", 2), *weekly(("mirrored", 1), ("one-device", 1))],
)
def test_a_random_map_is_restored_and_neither_that_nor_the_end_waits_for_a_thread_of_tf_data(
    tmp_path, strategy, workers
):
    log = tmp_path / "iterators"
    arguments = ["--random-input", "--save-every", "10", "--watch-iterators", str(log)]

    def ends():
        """What happened to the iterators of each worker."""
        logs = [log.with_name(f"iterators-{worker}") for worker in range(workers)]
        return [path.read_text().splitlines() for path in logs]

    with Cluster(tmp_path / "run", "steered.py", arguments, workers, strategy) as cluster:
        steered = SteeredRun(cluster)
        steered.wait_for_step(12)
        restored = steered.ask(CommandKind.RESTORE, name="ckpt-10")
        assert restored.state is CommandState.DONE, restored
        position = "'dataset' continues at its position, but the state of its operations"
        assert position in restored.message
        assert restored.result["inputs"] == [f"{position} is not restored"]
        steered.progress()
        wait_until(
            lambda: all("other thread" in lines for lines in ends()), 70, "ends of iterators"
        )
        assert all(lines.count("created") > 1 for lines in ends())
        stopped = steered.ask(CommandKind.STOP)
        assert stopped.state is CommandState.DONE, stopped
        assert cluster.wait() == [0] * workers, cluster.output()
    assert all("main thread" not in lines for lines in ends())
    run = steered.run
    record = load(run.record(stopped.result["name"]), CheckpointRecord)
    assert record.exactness.level == "not possible"
    for index in range(workers):
        random_state = run.worker_state_directory(record.name) / f"worker-{index}.json"
        kept = json.loads(random_state.read_text())
        replicas = 2 if strategy == "mirrored" else 1
        assert kept["elements_read"] == {"dataset": record.step * replicas}
    assert load(run.run_file, RunInfo).exactness == record.exactness
    assert not [entry for entry in read_entries(run) if entry.kind is EventKind.FAILED]


def cached(directory, *, steps):
    import tensorflow as tf

    numbers = tf.data.Dataset.range(4).map(lambda number: tf.cast(number, tf.float32))
    return {"dataset": numbers.cache(str(directory / "cache")).repeat(), "total_steps": steps}


def test_a_pipeline_whose_cache_is_gone_starts_over(make_run, tmp_path):
    run = make_run(**cached(tmp_path, steps=6))
    assert [float(batch) for batch in run] == [0, 1, 2, 3, 0, 1]
    facts = load(RunDirectory(run.directory).run_file, RunInfo).exactness
    assert f"cache('{tmp_path}/cache'), of which a checkpoint holds no files" in facts.reasons[0]
    assert [float(batch) for batch in make_run(**cached(tmp_path, steps=8))] == [2, 3]
    assert index_path(tmp_path / "cache").exists()
    assert Catalog(RunDirectory(tmp_path)).scan(time.time()) == ()
    for path in tmp_path.glob("cache*"):
        path.unlink()
    run = make_run(**cached(tmp_path, steps=10))
    assert [float(batch) for batch in run] == [0, 1]
    (told,) = [e.message for e in read_entries(RunDirectory(run.directory)) if "over" in e.message]
    assert f"because the files of cache('{tmp_path}/cache') are not complete" in told


def test_a_pipeline_with_a_snapshot_is_read_to_its_end_and_starts_over(make_run, tmp_path):
    import tensorflow as tf

    def run(*, steps):
        numbers = tf.data.Dataset.range(20).map(lambda number: tf.cast(number, tf.float32))
        saved = numbers.snapshot(str(tmp_path / "snapshot")).repeat()
        return make_run(dataset=saved, total_steps=steps, save_every_steps=4)

    first = run(steps=30)
    assert [float(batch) for batch in first] == [*range(20), *range(10)]
    facts = load(RunDirectory(first.directory).run_file, RunInfo).exactness
    assert facts.level == "not possible"
    assert "snapshot, which TensorFlow ends with an error" in facts.reasons[0]
    assert [float(batch) for batch in run(steps=32)] == [0, 1]


def test_a_dataset_that_ends_although_it_is_called_infinite_says_what_to_do(make_run):
    import tensorflow as tf

    first = tf.data.Dataset.range(10).shuffle(10, seed=1).take_while(lambda number: number != 9)
    with pytest.raises(UsageError, match=r"The dataset ended, although TensorFlow calls it inf"):
        list(make_run(dataset=first.repeat(), total_steps=10_000))


def test_a_shuffle_within_a_function_is_named(make_run):
    import tensorflow as tf

    def shuffled(number):
        return tf.data.Dataset.range(4).shuffle(4, seed=3).map(lambda one: one + number)

    run = make_run(dataset=tf.data.Dataset.range(3).interleave(shuffled), total_steps=2)
    list(run)
    facts = load(RunDirectory(run.directory).run_file, RunInfo).exactness
    assert "uses a shuffle in interleave (test_training_inputs.py line" in facts.reasons[0]
    assert "Shuffle before or after it" in facts.remedies[0]
