"""TensorFlow reads the files that were looked at, not what has come to their place since."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_training_adapted import BEFORE, GROWN, answers, strings

from tfckpt_trainer.bundle import opened
from tfckpt_trainer.bundle.index import index_path

pytestmark = pytest.mark.tensorflow

READERS = ("checkpoint.state", "state.comparison", "state.adapted", "pipelines.input_state")


@pytest.fixture
def replaced(monkeypatch):
    """The prefixes that TensorFlow reads from now on, each beside pipes in place of its files."""
    names = []

    @contextmanager
    def opened_beside_pipes(prefix: Path):
        with opened.opened_checkpoint(prefix) as place:
            names.append(prefix.name)
            files = list(prefix.parent.glob(f"{prefix.name}.index"))
            files += prefix.parent.glob(f"{prefix.name}.data-*")
            for file in files:
                file.rename(file.with_name(f"moved-{file.name}"))
                os.mkfifo(file)
            try:
                yield place
            finally:
                for file in files:
                    file.with_name(f"moved-{file.name}").replace(file)

    for reader in READERS:
        monkeypatch.setattr(
            f"tfckpt_trainer.training.{reader}.opened_checkpoint", opened_beside_pipes
        )
    return names


def test_pipes_in_place_of_files_hold_up_no_restore(make_run, replaced):
    import keras
    import tensorflow as tf

    def parts(words):
        layer, asked = strings(words)
        dense = [keras.layers.Dense(1), keras.layers.Dropout(0.5)]
        model = keras.Sequential([keras.Input((1,)), *dense])
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
        dataset = tf.data.Dataset.range(20)
        objects = {"model": model, "dataset": dataset, "extra": {"table": table, "lookup": layer}}
        return objects, asked

    objects, asked = parts(BEFORE)
    for _ in make_run(**objects, total_steps=2):
        objects["extra"]["table"].insert(tf.constant([7], tf.int64), tf.constant([8], tf.int64))
    before = answers(objects["extra"]["lookup"], asked), objects["model"].get_weights()
    assert replaced == []

    again, _ = parts(GROWN)
    list(make_run(**again, total_steps=3))
    assert set(replaced) == {"ckpt-2", "worker-0", "untracked"}
    assert answers(again["extra"]["lookup"], asked) == before[0]
    assert again["model"].get_weights() == before[1]
    assert again["extra"]["table"].lookup(tf.constant([7], tf.int64)).numpy().tolist() == [8]


def test_a_pipe_in_place_of_a_merged_index_holds_up_no_save(make_run, monkeypatch):
    from tfckpt_trainer.training import SaveOptions
    from tfckpt_trainer.training.checkpoint.saves import saver

    require_sound, replaced = saver.require_sound, []

    def replace_it(prefix: Path, verification):
        require_sound(prefix, verification)
        index = index_path(prefix)
        if index.is_file() and not replaced:
            index.unlink()
            os.mkfifo(index)
            replaced.append(index)

    monkeypatch.setattr(saver, "require_sound", replace_it)
    run = make_run(total_steps=3, save_every_steps=1, saving=SaveOptions(largest_shard=4))
    assert len(list(run)) == 3
    assert len(replaced) == 1
    names = {path.stem for path in run.directory.glob("*.index")}
    assert names == {"ckpt-2", "ckpt-3"}
