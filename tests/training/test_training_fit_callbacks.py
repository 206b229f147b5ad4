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
from pathlib import Path

import pytest
from steered import SteeredRun
from training_cluster import SCRIPTS, Cluster

from documentation import DOCS
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow

EPOCHS, STEPS = 7, 4
"""40 examples in batches of 10; saved after steps 7, 14 and 21, which is within an epoch."""


def train(run_dir, log, strategy, workers, *arguments):
    arguments = ["--log", str(log), *arguments]
    return Cluster(run_dir, "fitted_with_callbacks.py", arguments, workers, strategy)


def lines(log, worker):
    path = log.with_name(f"{log.name}-{worker}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_place(log, worker):
    """The last line of each batch and each end of an epoch."""
    return {(line["epoch"], line.get("batch", "end")): line for line in lines(log, worker)}


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
    def whole(strategy, workers):
        place = tmp_path_factory.mktemp("undisturbed")
        with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
            server.heard = []
            threading.Thread(target=server.serve_forever, daemon=True).start()
            words = ["--monitored", f"http://127.0.0.1:{server.server_port}"]
            history = finish(train(place / "run", place / "whole", strategy, workers, *words))
            server.shutdown()
        return Whole(place / "whole", history, server.heard)

    return whole


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("one-device", 1), *weekly(("multi-worker", 2))],
)
def test_callbacks_and_losses_are_those_of_a_run_that_never_stopped(
    undisturbed, tmp_path, strategy, workers
):
    back, cut = tmp_path / "back", tmp_path / "cut"
    whole, history = undisturbed(strategy, workers).log, undisturbed(strategy, workers).history
    assert history[0] == list(range(EPOCHS))
    assert len(history[1]["val_loss"]) == EPOCHS // 2

    went_back = train(tmp_path / "in-place", back, strategy, workers, "--restore-after", "18")
    assert finish(went_back) == history
    assert "ckpt-b1-14" in SteeredRun(went_back).names()

    with train(tmp_path / "cold", cut, strategy, workers, "--die-after", "23") as cluster:
        assert -signal.SIGKILL in cluster.wait(240), cluster.output()
    assert finish(train(tmp_path / "cold", cut, strategy, workers)) == history

    for worker in range(workers):
        expected = by_place(whole, worker)
        assert len(expected) == EPOCHS * (STEPS + 1)
        for log in (back, cut):
            found = by_place(log, worker)
            assert found.keys() == expected.keys()
            for place, line in found.items():
                assert line == expected[place], (log.name, place)
        restored = [line["epoch"] for line in lines(back, worker) if line.get("batch") == 3]
        assert restored.count(1) == 2
        ends = [line for line in lines(whole, worker) if "end" in line]
        assert [line["epoch"] for line in ends if "val_loss" in line["end"]] == [1, 3, 5]
    files = whole.with_name("whole-files")
    assert {path.name for path in files.glob("*.h5")} == {
        path.name for path in cut.with_name("cut-files").glob("*.h5")
    }
    assert list((files / "tensorboard" / "train").glob("*tfevents*"))
    for log in (whole, back, cut):
        with (log.with_name(f"{log.name}-files") / "epochs.csv").open() as file:
            epochs = [int(row["epoch"]) for row in csv.DictReader(file)]
        assert sorted(set(epochs)) == list(range(EPOCHS)), log.name


def test_a_remote_monitor_hears_of_each_epoch_once(undisturbed):
    assert undisturbed("one-device", 1).heard == list(range(EPOCHS))


ROW = re.compile(r"^\| `(\w+)` \| (exact|works|refused) \|", re.MULTILINE)


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
        if kind != "refused":
            assert f"keras.callbacks.{name}" in source, name


def test_a_run_goes_on_with_other_callbacks_and_keeps_its_history(tmp_path):
    done = run_with_tensorflow(SCRIPTS / "fit_changed_callbacks.py", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for runs in json.loads(done.stdout.splitlines()[-1]).values():
        assert [len(losses) for losses in runs] == [2, 3, 4]
        assert runs[2][:3] == runs[1]
        assert runs[1][:2] == runs[0]


def test_a_quick_check_repeats_no_end_of_an_epoch_and_leaves_no_trace(undisturbed, tmp_path):
    checked = tmp_path / "checked"
    whole, history = undisturbed("one-device", 1).log, undisturbed("one-device", 1).history
    # The third batch of an epoch: the check waits for the next epoch, which has four.
    cluster = train(tmp_path / "check", checked, "one-device", 1, "--check-after", "7")
    assert finish(cluster) == history
    (answer,) = RunDirectory(cluster.run_dir).done.glob("*.json")
    command = load(answer, Command)
    assert command.result["exact"], command.message
    assert command.result["steps"] == 3
    expected, found = by_place(whole, 0), by_place(checked, 0)
    assert {place: line["digest"] for place, line in found.items()} == {
        place: line["digest"] for place, line in expected.items()
    }
    ends = [line["epoch"] for line in lines(checked, 0) if "end" in line]
    assert ends == list(range(EPOCHS))
    batches = [(line["epoch"], line["batch"]) for line in lines(checked, 0) if "batch" in line]
    assert [place for place in batches if batches.count(place) == 2] == [(2, 0), (2, 1), (2, 2)] * 2
    # Callbacks that write saw each step once.
    files = [one.with_name(f"{one.name}-files") for one in (whole, checked)]
    of_run, of_check = ({path.name for path in one.glob("*.h5")} for one in files)
    assert of_check == of_run
    assert (files[1] / "epochs.csv").read_text() == (files[0] / "epochs.csv").read_text()
