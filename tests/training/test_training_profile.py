"""Steps are traced on request, between two steps, and training goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_training_guards import Script
from this_process import until_taken

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind

pytestmark = pytest.mark.tensorflow


def trained(tmp_path, asking, total_steps=30):
    """Trains; sends commands at steps; returns the script and the outcomes."""
    script = Script(tmp_path, guards=[], total_steps=total_steps)
    step, queue, waiting = (
        script.run.function(script.replica_step),
        CommandQueue(script.directory),
        [],
    )
    for batch in script.run:
        for kind, given in asking.get(script.run.step, ()):
            waiting.append(queue.submit(kind, given, requested_by="test"))
            until_taken(script.run)
        step(batch)
    return script, [queue.wait(command, timeout=30) for command in waiting]


def test_steps_are_traced_where_tensorboard_finds_them(tmp_path):
    tmp_path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        script, (outcome,) = trained(tmp_path, {14: [(CommandKind.PROFILE, {"steps": 5})]})
    finally:
        os.umask(before)
    assert outcome.state is CommandState.DONE, outcome.message
    assert outcome.message.startswith("Traced 5 steps on 1 worker. A step took ")
    (trace,) = outcome.result["workers"]
    file = Path(trace["file"])
    assert file.is_relative_to(script.directory.tensorboard / "branch-0" / "plugins" / "profile")
    # A group shares the directory.
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o640, 0o770)
    (noted,) = [e for e in script.events(EventKind.NOTE) if e.message.startswith("profile: ")]
    assert noted.step == 20


def test_a_trace_that_cannot_be_is_refused(tmp_path):
    import tensorflow as tf

    wanted = (CommandKind.PROFILE, {"steps": 5})
    asking = {3: [(CommandKind.PROFILE, {"workers": [1]})], 5: [wanted], 7: [wanted]}
    _, (unknown, first, second) = trained(tmp_path / "a", asking)
    assert unknown.message == "There is no worker 1: the run has 1 worker, numbered from 0."
    assert first.state is CommandState.DONE
    assert second.message == "A profile is in progress. Try again when it is over."
    tf.profiler.experimental.start(str(tmp_path / "own"))
    try:
        _, (refused,) = trained(tmp_path / "b", {3: [wanted]})
    finally:
        tf.profiler.experimental.stop(save=False)
    assert refused.state is CommandState.REFUSED
    assert "A trace is in progress in this process" in refused.message


def test_a_run_that_ends_before_says_so(tmp_path):
    import tensorflow as tf

    _, (outcome,) = trained(tmp_path, {25: [(CommandKind.PROFILE, {"steps": 50})]})
    assert (outcome.state, outcome.message) == (
        CommandState.FAILED,
        "The run ended before the steps were traced.",
    )
    # Nothing is left that is in the way of the next trace.
    tf.profiler.experimental.start(str(tmp_path / "next"))
    tf.profiler.experimental.stop(save=False)
