"""Every callback of Keras goes on after a restore as the documentation says."""

from __future__ import annotations

import csv
import json
import re
import signal
import threading
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from kerases import KERAS_2, KERAS_3, environment_of
from steered import SteeredRun
from training_cluster import SCRIPTS, Cluster

from documentation import DOCS
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow

EPOCHS, STEPS = 7, 4
"""40 examples in batches of 10; saved after steps 7, 14 and 21, which is within an epoch."""


def train(run_dir, log, strategy, workers, keras, *arguments):
    words = ["--log", str(log), *arguments]
    script, environment = "fitted_with_callbacks.py", environment_of(keras)
    return Cluster(run_dir, script, words, workers, strategy, environment)


def lines(log, worker):
    path = log.with_name(f"{log.name}-{worker}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def place_of(line):
    return line["epoch"], line.get("batch", "end")


def by_place(log, worker):
    """The last line of each batch and each end of an epoch."""
    return {place_of(line): line for line in lines(log, worker)}


def files_of(log):
    """The directory of what callbacks write."""
    return log.with_name(f"{log.name}-files")


def names_of_weights(log):
    return {path.name for path in files_of(log).glob("*.h5")}


def history_of(cluster):
    return json.loads(cluster.log(0).read_text().rpartition("history ")[2])


def finish(cluster):
    with cluster:
        assert cluster.wait(240) == [0] * cluster.workers, cluster.output()
    return history_of(cluster)


@dataclass
class Whole:
    """A run that never stopped."""

    log: Path
    history: list
    heard: list[int]
    """The epochs that its remote monitor told a server of."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Returns a run that never stopped, by its strategy and number of workers."""

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.heard.append(body["epoch"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    @cache
    def whole(strategy, workers, keras=KERAS_3):
        place = tmp_path_factory.mktemp("undisturbed")
        with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
            server.heard = []
            threading.Thread(target=server.serve_forever, daemon=True).start()
            words = ["--monitored", f"http://127.0.0.1:{server.server_port}"]
            history = finish(
                train(place / "run", place / "whole", strategy, workers, keras, *words)
            )
            server.shutdown()
        return Whole(place / "whole", history, server.heard)

    return whole


@dataclass
class Disturbed:
    """A run that was checked, went back, was killed and resumed."""

    run: SteeredRun
    log: Path
    history: list


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """Returns such a run, by its strategy and number of workers."""

    @cache
    def train_and_resume(strategy, workers, keras=KERAS_3):
        place = tmp_path_factory.mktemp("disturbed")
        options = (place / "run", place / "log", strategy, workers, keras)
        # The third batch of an epoch: the check waits for the next epoch, which has four. It trains
        # three steps again, so that the run goes back after step 18, and dies after step 15 or 16.
        words = ["--check-after", "7", "--restore-after", "21", "--die-after", "30"]
        with train(*options, *words) as cluster:
            assert -signal.SIGKILL in cluster.wait(240), cluster.output()
        history = finish(train(*options))
        return Disturbed(SteeredRun(cluster), place / "log", history)

    return train_and_resume


def before_restore(log, worker):
    """What was logged until the run went back."""
    found = lines(log, worker)
    again = [n for n, line in enumerate(found) if (line["epoch"], line.get("batch")) == (1, 3)]
    return found[: again[1]]


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("one-device", 1), *weekly(("multi-worker", 2))],
)
@pytest.mark.parametrize("keras", [KERAS_3, KERAS_2])
def test_callbacks_and_losses_are_those_of_a_run_that_never_stopped(
    undisturbed, disturbed, keras, strategy, workers
):
    run, never_stopped = (of(strategy, workers, keras) for of in (disturbed, undisturbed))
    whole, history = never_stopped.log, never_stopped.history
    assert history[0] == list(range(EPOCHS))
    assert len(history[1]["val_loss"]) == EPOCHS // 2
    assert run.history == history
    assert "ckpt-b1-14" in run.run.names()

    for worker in range(workers):
        expected = by_place(whole, worker)
        assert len(expected) == EPOCHS * (STEPS + 1)
        found = lines(run.log, worker)
        assert {place_of(line) for line in found} == expected.keys()
        for line in found[len(before_restore(run.log, worker)) :]:
            assert line == expected[place_of(line)], place_of(line)
        assert [place_of(line) for line in found].count((1, 3)) == 2
        ends = [line for line in lines(whole, worker) if "end" in line]
        assert [line["epoch"] for line in ends if "val_loss" in line["end"]] == [1, 3, 5]
    assert names_of_weights(run.log) == names_of_weights(whole)
    assert [path.name for path in files_of(whole).glob("tracked-by-*")] == ["tracked-by-0"]
    assert list((files_of(whole) / "tensorboard" / "train").glob("*tfevents*"))
    for log in (whole, run.log):
        with (files_of(log) / "epochs.csv").open() as file:
            epochs = [int(row["epoch"]) for row in csv.DictReader(file)]
        assert sorted(set(epochs)) == list(range(EPOCHS)), log.name


def test_callbacks_that_send_data_run_on_the_chief_only_unless_they_say_otherwise():
    import keras

    from tfckpt_trainer.errors import UsageError
    from tfckpt_trainer.training.keras.fit_callbacks import worker_callbacks

    class Own(keras.callbacks.Callback):
        pass

    class Tracker(keras.callbacks.Callback):
        __module__ = "wandb.integration.keras"

    class Derived(Tracker):
        pass

    class Everywhere(Tracker):
        chief_only = False

    class Sends(Own):
        chief_only = True

    given = [Own(), Tracker(), Derived(), Everywhere(), Sends(), keras.callbacks.CSVLogger("x")]
    assert worker_callbacks(given, is_chief=True) == given
    elsewhere = worker_callbacks(given, is_chief=False)
    assert [one in given for one in elsewhere] == [True, False, False, True, False, False]
    given[0].chief_only = "yes"
    with pytest.raises(UsageError, match=r"Own\.chief_only is 'yes'; expected True or False"):
        worker_callbacks(given, is_chief=False)


def test_a_remote_monitor_hears_of_each_epoch_once(undisturbed):
    assert undisturbed("one-device", 1).heard == list(range(EPOCHS))


ROW = re.compile(r"^\| `(\w+)` \| (exact|works|replaced|refused) \|", re.MULTILINE)


def documented():
    return dict(ROW.findall((DOCS / "how-to" / "keras.md").read_text()))


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """The callbacks of Keras, and those that `fit` refuses or runs on the chief only."""
    script = tmp_path_factory.mktemp("script") / "list.py"
    script.write_text(
        "import json\n"
        "import keras\n"
        "from tfckpt_trainer.training.keras.fit_callbacks import CHIEF_ONLY, REFUSED\n"
        "names = [name for name in dir(keras.callbacks) if name[0].isupper()]\n"
        "lists = [names, *([kind.__name__ for kind in kinds] for kinds in (CHIEF_ONLY, REFUSED))]\n"
        "print(json.dumps(lists))\n"
    )
    done = run_with_tensorflow(script)
    assert done.returncode == 0, done.stderr[-2000:]
    return [set(names) for names in json.loads(done.stdout.splitlines()[-1])]


def test_each_callback_of_keras_has_a_row_in_the_documentation(known):
    every, chief_only, refused = known
    rows = documented()
    assert every == set(rows)
    assert refused == {name for name, kind in rows.items() if kind == "refused"}
    page = (DOCS / "how-to" / "keras.md").read_text()
    chief_rows = set(re.findall(r"^\| `(\w+)` \|.*[Cc]hief only", page, re.MULTILINE))
    assert chief_only == chief_rows


def test_each_exact_callback_is_in_the_run_that_is_compared(known):
    source = (DOCS.parent / "tests/training/scripts/fitted_with_callbacks.py").read_text()
    for name, kind in documented().items():
        if kind not in {"refused", "replaced"}:
            assert f"keras.callbacks.{name}" in source, name


def test_a_run_goes_on_with_other_callbacks_and_keeps_its_history(tmp_path):
    done = run_with_tensorflow(SCRIPTS / "fit_changed_callbacks.py", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    runs = json.loads(done.stdout.splitlines()[-1])
    assert [len(losses) for losses in runs] == [2, 3, 4, 5]
    for before, after in pairwise(runs):
        assert after[: len(before)] == before


def test_a_quick_check_repeats_no_end_of_an_epoch_and_leaves_no_trace(undisturbed, disturbed):
    whole, run = undisturbed("one-device", 1).log, disturbed("one-device", 1)
    commands = [load(path, Command) for path in run.run.run.done.glob("*.json")]
    (command,) = [one for one in commands if one.kind is CommandKind.CHECK]
    assert command.result["exact"], command.message
    assert command.result["steps"] == 3
    expected, found = by_place(whole, 0), before_restore(run.log, 0)
    assert [line["digest"] for line in found] == [
        expected[place_of(line)]["digest"] for line in found
    ]
    assert [line["epoch"] for line in found if "end" in line] == [0, 1, 2, 3]
    batches = [place_of(line) for line in found if "batch" in line]
    assert [place for place in batches if batches.count(place) == 2] == [(2, 0), (2, 1), (2, 2)] * 2
    # Callbacks that write saw each step once.
    assert names_of_weights(run.log) == names_of_weights(whole)
    rows = [(files_of(log) / "epochs.csv").read_text().splitlines() for log in (whole, run.log)]
    assert rows[1][:5] == rows[0][:5]


def test_an_attribute_that_cannot_be_saved_any_more_is_named_at_the_next_save(tmp_path):
    import keras
    import numpy as np

    from tfckpt_trainer.training import fit

    class Late(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.from_the_start, self.later = range(3), 0

        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                self.later = range(3)

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((2, 1))
    fit(model, x, x, 1, 4, run_dir=tmp_path, verbose=0, callbacks=[Late()], save_every_epochs=1)
    messages = [entry.message for entry in read_entries(RunDirectory(tmp_path))]
    named = [re.findall(r"Late\.(\w+)", message) for message in messages if "bring back" in message]
    assert named == [["from_the_start"], ["later"]]
