"""What layers were adapted to comes back with a checkpoint, or a restart is refused."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from kerases import environment_of
from training_cluster import Cluster

from tfckpt_trainer.errors import RefusedError, TfckptError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory

pytestmark = pytest.mark.tensorflow

BEFORE = ["red", "blue", "blue"]
GROWN = ["green", "green", "green", "red", "blue", "blue"]


def strings(words, **options):
    from tfckpt_trainer.training.keras_library import keras

    layer = keras.layers.StringLookup(max_tokens=3, **options)
    layer.adapt(np.array(words))
    return layer, ["blue", "green", "red"]


def given_strings(words):
    from tfckpt_trainer.training.keras_library import keras

    most = sorted(set(words), key=words.count)[-1]
    return keras.layers.StringLookup(vocabulary=[most, "white"]), ["blue", "green", "white"]


def integers(words):
    from tfckpt_trainer.training.keras_library import keras

    layer = keras.layers.IntegerLookup(max_tokens=3)
    layer.adapt(np.array([len(word) for word in words]))
    return layer, [[3], [4], [5]]


def text(words, most=4, mode="int"):
    from tfckpt_trainer.training.keras_library import keras

    layer = keras.layers.TextVectorization(max_tokens=most, output_mode=mode)
    layer.adapt(np.array(words))
    return layer, ["blue red", "green"]


def lengths(words):
    return np.array([[len(word)] for word in words], np.float32)


def normalized(words):
    from tfckpt_trainer.training.keras_library import keras

    layer = keras.layers.Normalization()
    layer.adapt(lengths(words))
    return layer, lengths(GROWN)


def binned(words):
    from tfckpt_trainer.training.keras_library import keras

    layer = keras.layers.Discretization(num_bins=3)
    layer.adapt(lengths([*words, "a" * len(words)]))
    return layer, lengths(GROWN)


LAYERS = {
    "strings": strings,
    "strings given": given_strings,
    "strings inverted": lambda words: (strings(words, invert=True)[0], [[0], [1], [2]]),
    "integers": integers,
    "text": text,
    "tf-idf": lambda words: text(words, 3, "tf_idf"),
    "normalized": normalized,
    "binned": binned,
}


def holding(layer):
    """A model that holds a layer, and one variable."""
    from tfckpt_trainer.training.keras_library import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.layer = layer
    return model


def answers(layer, asked):
    import tensorflow as tf

    return tf.convert_to_tensor(layer(tf.constant(asked))).numpy().tolist()


def notes(run):
    entries = read_entries(RunDirectory(run.directory))
    return [entry.message for entry in entries if entry.kind.value == "start"][-1]


@pytest.mark.needs("tf_keras")
def test_all_of_this_holds_for_keras_2():
    words = ["-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-k", "not keras_2", __file__]
    # A process has one Keras.
    environment = {**os.environ, **environment_of("tf_keras")}
    command = [sys.executable, *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=540)
    assert ended.returncode == 0, ended.stdout[-3000:]


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_what_a_layer_was_adapted_to_comes_back_in_a_new_process(make_run, make):
    layer, asked = make(BEFORE)
    before = answers(layer, asked)
    list(make_run(model=holding(layer), total_steps=2))

    again, _ = make(GROWN)
    assert answers(again, asked) != before
    run = make_run(model=holding(again), total_steps=4)
    steps = [answers(again, asked) for _ in run]
    assert steps == [before, before]
    assert "was adapted to other data, and has the saved values again." in notes(run)
    # The next save has what came back.
    third, _ = make(GROWN)
    steps = [answers(third, asked) for _ in make_run(model=holding(third), total_steps=5)]
    assert steps == [before]
    if layer.__class__.__name__ == "StringLookup":
        assert third.get_config()["vocabulary"] == layer.get_config()["vocabulary"]


def test_the_weights_of_the_same_vocabulary_come_back(make_run):
    layer, asked = text(BEFORE, mode="tf_idf")
    before = answers(layer, asked)
    list(make_run(model=holding(layer), total_steps=2))

    again, _ = text([*BEFORE, "blue"], mode="tf_idf")
    assert again.get_vocabulary() == layer.get_vocabulary()
    assert answers(again, asked) != before
    run = make_run(model=holding(again), total_steps=4)
    assert [answers(again, asked) for _ in run] == [before, before]


def test_nothing_is_said_where_the_data_is_the_same(make_run):
    for steps in (2, 4):
        run = make_run(model=holding(strings(BEFORE)[0]), total_steps=steps)
        assert len(list(run)) == 2
    assert "adapted" not in notes(run)
    assert "not compared" not in notes(run)


def test_the_values_are_read_by_their_path(make_run):
    import tensorflow as tf

    run = make_run(model=holding(strings(BEFORE)[0]), total_steps=2)
    list(run)
    beside = RunDirectory(run.directory).worker_state_directory("ckpt-2") / "untracked"
    reader = tf.train.load_checkpoint(str(beside))
    assert reader.get_tensor(".adapted/model/layer/vocabulary").tolist() == [b"blue", b"red"]


def refusal(make_run, **options):
    with pytest.raises(TfckptError) as refused:
        list(make_run(total_steps=4, **options))
    return str(refused.value)


def test_a_vocabulary_that_a_pipeline_uses_already_is_refused(make_run):
    import tensorflow as tf

    def passed(words):
        layer, _ = strings(words)
        return {
            "extra": {"lookup": layer},
            "dataset": tf.data.Dataset.from_tensors(BEFORE).repeat().map(layer),
        }

    list(make_run(**passed(BEFORE), total_steps=2))
    refused = refusal(make_run, **passed(GROWN))
    for told in (
        "lookup/vocabulary is 'green' at 0, and 'blue' in the checkpoint",
        "an input pipeline or a traced function uses it already",
        ".get_tensor('.adapted/lookup/vocabulary')",
    ):
        assert told in refused, refused
    list(make_run(**passed(BEFORE), total_steps=4))


def test_a_table_of_a_pipeline_is_compared_though_nothing_passed_holds_it(make_run):
    import tensorflow as tf

    def dataset(words):
        layer, _ = text(words)
        return tf.data.Dataset.from_tensors(BEFORE).repeat().map(layer)

    list(make_run(dataset=dataset(BEFORE), total_steps=2))
    refused = refusal(make_run, dataset=dataset(GROWN))
    assert "input/dataset/tables/0/keys is 'green' at 0, and 'blue' in the checkpoint" in refused
    assert "nothing can change a static table" in refused
    run = make_run(dataset=dataset(GROWN), total_steps=4, partial=True)
    assert len(list(run)) == 2


def test_a_layer_that_was_adapted_may_be_saved_in_the_background(make_run):
    from tfckpt_trainer.training import SaveOptions

    background = SaveOptions(background=True)
    layer, asked = strings(BEFORE)
    before = answers(layer, asked)
    list(make_run(model=holding(layer), total_steps=4, save_every_steps=1, saving=background))
    again, _ = strings(GROWN)
    run = make_run(model=holding(again), total_steps=6, saving=background)
    assert [answers(again, asked) for _ in run] == [before, before]


@pytest.mark.weekly  # The others show with one worker what comes back.
def test_each_worker_keeps_what_it_adapted_its_layer_to(tmp_path):
    def train(steps, *words):
        arguments = ["--steps", str(steps), "--words", *map(",".join, words)]
        with Cluster(tmp_path / "run", "adapted_apart.py", arguments) as cluster:
            statuses = cluster.wait()
            return statuses, cluster.output()

    other = ["red", "red", "blue"]
    for steps, words in ((2, BEFORE), (4, GROWN)):
        statuses, output = train(steps, words, other)
        assert statuses == [0, 0], output
    assert output.count("has [UNK] blue red") == output.count("has [UNK] red blue") == 2
    # A save has the values of the first worker, and of the second one that they are others.
    statuses, output = train(6, BEFORE, GROWN)
    assert statuses == [1, 1]
    assert "worker 1: model/lookup has other values than in the checkpoint" in output


def test_a_layer_that_is_passed_later_is_refused_and_not_half_restored(make_run, monkeypatch):
    def end(status):
        pytest.fail(f"the process ended with {status}")

    # A start that goes on after a restore in half ends its process.
    monkeypatch.setattr(os, "_exit", end)
    list(make_run(total_steps=2))
    refused = refusal(make_run, extra={"words": strings(BEFORE)[0]})
    assert "words/token_counts is missing in the checkpoint" in refused


def test_a_vocabulary_that_only_the_step_reads_is_not_called_saved(make_run, tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.rundir.records.run import RunInfo
    from tfckpt_trainer.rundir.storage.documents import load

    def known(name, **passed):
        run = make_run(tmp_path / name, total_steps=2, **passed)
        step = run.function(lambda _: tf.cast(layer(tf.constant(["red"])), tf.float32))
        for _ in run:
            step(tf.zeros([]))
        return load(RunDirectory(run.directory).run_file, RunInfo).exactness

    layer, _ = strings(BEFORE)
    found = known("not passed")
    assert found.level == "unknown"
    assert found.reasons[0].startswith(
        "no checkpoint holds what the step reads: lookup table at test_training_adapted.py:"
    )
    assert found.remedies == ["Pass the object that holds it in extra={…}."]
    assert known("passed", extra={"words": layer}).level == "expected"


def centred(words):
    from tfckpt_trainer.training.keras_library import keras

    layer = keras.layers.Normalization(mean=float(lengths(words).mean()), variance=1.0)
    layer.build((None, 1))
    return layer


def tabled(words):
    import tensorflow as tf

    holder = tf.Module()
    values = tf.range(len(set(words)))
    made = tf.lookup.KeyValueTensorInitializer(tf.constant(sorted(set(words))), values)
    holder.table = tf.lookup.StaticHashTable(made, -1)
    return holder


@pytest.mark.parametrize(
    ("make", "obstacle"),
    [(centred, "the script gives it"), (tabled, "nothing can change a static table")],
)
def test_other_values_that_the_script_gives_are_refused(make_run, make, obstacle):
    list(make_run(model=holding(make(BEFORE)), total_steps=2))
    assert obstacle in refusal(make_run, model=holding(make(GROWN)))
    assert len(list(make_run(model=holding(make(BEFORE)), total_steps=3))) == 1


def answering(words):
    """A model that looks words up, and has a number for each."""
    from tfckpt_trainer.training.keras_library import keras

    lookup, _ = strings(words)
    asked = keras.Input((1,), dtype="string")
    return keras.Model(asked, keras.layers.Embedding(3, 1)(lookup(asked)))


def export(run, model, directory, form, name):
    """Writes and checks an export of ckpt-2; returns the problem of each phase."""
    from tfckpt_trainer.rundir.records.export import ExportPhase, ExportRequest, ExportResult
    from tfckpt_trainer.rundir.storage.documents import load, store
    from tfckpt_trainer.training.checkpoint.state import SharedState
    from tfckpt_trainer.training.loop.export import run_export

    problems = []
    for phase in ExportPhase:
        request = ExportRequest(checkpoint="ckpt-2", format=form, phase=phase, file_name=name)
        store(directory / "request.json", request)
        shared, run_dir = SharedState(model, None, {}), RunDirectory(run.directory)
        run_export(directory / "request.json", run_dir, shared, model, None)
        report = load(directory / f"report-{phase.value}.json", ExportResult)
        problems.append(report.problem)
    return problems


def test_no_model_is_loaded_from_where_others_may_write(make_run, tmp_path):
    model = holding(strings(BEFORE)[0])
    run = make_run(model=model, total_steps=2)
    list(run)
    tmp_path.chmod(0o770)
    with pytest.raises(RefusedError, match="Somebody else put a directory in place"):
        export(run, model, tmp_path, "keras", "m.keras")
    assert not list(tmp_path.glob("report-*"))


def answered(model):
    import tensorflow as tf

    return np.asarray(model(tf.constant([["blue"], ["red"], ["green"]]))).tolist()


@pytest.mark.parametrize(("form", "name"), [("keras", "m.keras"), ("saved-model", "m")])
def test_an_export_answers_with_the_vocabulary_of_training(make_run, tmp_path, form, name):
    import tensorflow as tf

    from tfckpt_trainer.training.keras_library import keras

    trained = answering(BEFORE)
    run = make_run(model=trained, total_steps=2)
    list(run)
    assert export(run, answering(GROWN), tmp_path, form, name) == ["", ""]
    place = str(tmp_path / name)
    loaded = keras.models.load_model(place) if form == "keras" else tf.saved_model.load(place)
    assert answered(getattr(loaded, "serve", loaded)) == answered(trained)


def test_an_export_is_refused_where_a_traced_function_has_another_vocabulary(make_run, tmp_path):
    import tensorflow as tf

    run = make_run(model=answering(BEFORE), total_steps=2)
    list(run)
    model = answering(GROWN)
    called = tf.function(model)
    called(tf.constant([["blue"]]))
    problem, _ = export(run, model, tmp_path, "keras", "m.keras")
    assert problem.startswith("The model is not that of ckpt-2: model/")
    assert "a traced function uses it already" in problem
