"""When a run saves, and what it keeps, if its script gives no save option."""

from __future__ import annotations

import pytest

from tfckpt_trainer import Policy
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.runs.report import status_report

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def run(tmp_path):
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def fit_here(run):
    """Fits a model in epochs of two steps; its loss grows from epoch to epoch."""
    import keras
    import numpy as np

    from tfckpt_trainer.training import fit

    def fit_model(epochs, **options):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(3.0), "mse", metrics=["mae"])
        x = np.ones((2, 1))
        return fit(model, x, x * 9, 1, epochs, run_dir=run.root, verbose=0, **options)

    return fit_model


def triggers(run):
    """Returns why each checkpoint was saved, by name, newest first."""
    return {c.name: c.trigger for c in Catalog(run).scan(0.0)}


def notes(run):
    return [entry.message for entry in read_entries(run) if entry.message.startswith("Saves ")]


AT_END_OF_EPOCH = "by default, at the end of an epoch"


def test_a_fit_saves_after_each_epoch_and_keeps_the_newest_and_the_best(fit_here, run, capsys):
    fit_here(6)
    assert list(triggers(run)) == ["ckpt-12", "ckpt-10", "ckpt-8", "ckpt-2"]
    assert triggers(run)["ckpt-2"] == AT_END_OF_EPOCH
    words = (
        "at the end of each epoch and every 10 min, by default; the last 3 and the best loss of "
        "these stay"
    )
    assert notes(run) == [f"Saves {words}. save_every_seconds=None turns that off."]
    said = capsys.readouterr().err
    assert notes(run)[0] in said and "Started at" not in said
    assert status_report(run).run.saves == words
    fit_here(7)
    assert "Started at step 12 from ckpt-12." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "metric"),
    [
        ({"validation_split": 0.5}, "val_loss"),
        ({"watching": {"monitor": "mae"}}, "mae"),
        ({"watching": {"monitor": "val_f1", "mode": "max"}}, "val_f1"),
    ],
)
def test_the_best_is_that_of_what_is_watched(fit_here, run, options, metric):
    import keras

    if "watching" in options:
        watching = keras.callbacks.ReduceLROnPlateau(patience=99, **options.pop("watching"))
        options["callbacks"] = [watching]
    fit_here(2, **options)
    assert f"the last 3 and the best {metric} of these stay" in notes(run)[0]


def test_a_metric_that_nobody_reports_keeps_no_checkpoint_from_being_pruned(fit_here, run):
    import keras

    fit_here(6, callbacks=[keras.callbacks.EarlyStopping("nothing", mode="min")])
    assert list(triggers(run)) == ["ckpt-12", "ckpt-10", "ckpt-8"]


def test_what_an_option_had_saved_stays(fit_here, run):
    fit_here(3, save_every_epochs=1)
    assert notes(run) == []
    before = triggers(run)
    fit_here(9)
    assert list(triggers(run)) == ["ckpt-18", "ckpt-16", "ckpt-14", "ckpt-8", *before]


def test_a_retention_of_the_script_replaces_the_default(fit_here, run):
    fit_here(6, retention=Policy(keep_last=1))
    assert list(triggers(run)) == ["ckpt-12"]
    fit_here(8, retention=None)
    assert list(triggers(run)) == ["ckpt-16", "ckpt-14", "ckpt-12"]


def test_a_loop_saves_by_the_clock(make_run, run, monkeypatch):
    from tfckpt_trainer.training.loop import run_options

    monkeypatch.setattr(run_options, "EVERY_SECONDS", 0.0)
    assert len(list(make_run(total_steps=6))) == 6
    assert list(triggers(run)) == ["ckpt-6", "ckpt-5", "ckpt-4"]
    assert triggers(run)["ckpt-5"] == "by default, every 10 min"
    assert notes(run)[0].startswith("Saves every 10 min, by default; the last 3 of these stay.")


@pytest.mark.parametrize("option", ["save_every_steps", "save_every_seconds"])
def test_what_turns_it_off_is_said(make_run, run, option):
    assert len(list(make_run(total_steps=3, **{option: None}))) == 3
    assert list(triggers(run)) == ["ckpt-3"]
    assert notes(run) == ["Saves only at its end: a crash loses all steps."]
    assert status_report(run).run.saves == "only at its end"


def test_an_option_is_told_as_it_is(make_run, run):
    list(make_run(total_steps=1, save_every_steps=500, save_on_improvement="loss:min"))
    assert notes(run) == []
    assert status_report(run).run.saves == "every 500 steps, when loss improves"
