"""An error of the script is told with its line first, and the other workers name it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from training_cluster import SCRIPTS, Cluster

from receiving_server import receiving
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Ending
from weekly import weekly

pytestmark = pytest.mark.tensorflow

SCRIPT = SCRIPTS / "failing.py"

ERRORS = {
    "graph": ("tf.debugging.assert_less", "InvalidArgumentError: assertion failed: [the rate is"),
    "loop": ('rate = {}["rate"]', "KeyError: 'rate'"),
    "layer": ("model(tf.ones((2, 5)))", "ValueError: Exception encountered when calling Sequ"),
    "tracing": ("loss = tf.reduce_mean(model(x) ** 2)", "ValueError: Exception encountered when"),
}


def told(how):
    """The beginning of the description of an error."""
    source, message = ERRORS[how]
    (number,) = [
        number
        for number, line in enumerate(SCRIPT.read_text().splitlines(), 1)
        if line.strip().startswith(source)
    ]
    shown = SCRIPT.relative_to(Path.cwd()) if SCRIPT.is_relative_to(Path.cwd()) else SCRIPT
    return f"{shown}:{number}: {message}"


@pytest.mark.parametrize(
    "ways", [("graph", "loop", "tracing"), *weekly((("layer",),))], ids=" ".join
)
def test_every_worker_tells_which_line_of_the_script_failed(tmp_path, ways):
    with receiving() as webhook, contextlib.ExitStack() as stack:
        for how in ways:
            # Nobody launched these workers, so their chief sends alerts.
            run = RunDirectory(tmp_path / how)
            run.create()
            run.config_file.write_text(f'[[alerts.webhooks]]\nurl = "{webhook.url}/{how}"\n')
        clusters = {
            how: stack.enter_context(Cluster(tmp_path / how, "failing.py", ["--how", how]))
            for how in ways
        }
        for how, cluster in clusters.items():
            statuses = cluster.wait()
            chief, other = read_workers(RunDirectory(tmp_path / how))
            assert other.detail.startswith(told(how)), cluster.output()
            assert other.detail.isprintable()
            # The stack of TensorFlow follows in the log.
            log = cluster.log(1).read_text()
            assert f"{other.detail}\n    {ERRORS[how][0]}" in log
            assert log.index(other.detail) < log.index("Traceback (most recent call last)")
            if how == "tracing":
                assert statuses == [1, 1]
                assert chief.detail.startswith(told(how))
                continue
            assert statuses == [75, 1], cluster.output()
            assert chief.ending is Ending.PEER_LOST
            assert chief.detail == f"Worker 1 failed: {other.detail}"
            lost = read_entries(RunDirectory(tmp_path / how))[-1]
            assert (lost.kind, lost.message) == (EventKind.WORKER_LOST, chief.detail)
    # In the last one, the script failed before its run existed.
    sent = [(path[1:], body["kind"]) for path, _, body in webhook.requests]
    assert sorted(sent) == [(how, "worker lost") for how in sorted(ways) if how != "tracing"]
