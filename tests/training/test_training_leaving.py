"""A process that leaves is gone at once, with its status and all that it wrote."""

from __future__ import annotations

import contextlib
import time

import pytest
from training_cluster import Cluster

from stalls import Stalls
from waiting import wait_until

pytestmark = pytest.mark.tensorflow

WAYS = {
    "stop": 0,
    "end": 0,
    "fit": 0,
    "break": 0,
    "sigterm": 143,
    "error": 1,
    "keras-stop": 0,
    "keras-sigterm": 143,
}

SHORT = 7.5
"""Seconds without those in which a thread waits for the processor.

A thread of tf.data that was missed sleeps for nine more.
"""


@pytest.fixture
def no_false_alarm():
    """The script has an iterator that it did not pass, so it is told."""


def test_whichever_way_it_leaves_a_process_does_not_wait_for_tf_data(tmp_path):
    with contextlib.ExitStack() as stack:
        left, gone, stalls = {}, {}, {}
        clusters = {
            how: stack.enter_context(
                Cluster(
                    tmp_path / how,
                    "leaving.py",
                    ["--how", how],
                    workers=1,
                    strategy="one-device",
                    environment={"TFCKPT_ATTEMPT": "0"},
                    ends_fully=True,
                )
            )
            for how in WAYS
        }

        def all_gone():
            for how, cluster in clusters.items():
                (process,) = cluster.processes
                if how not in stalls and (tmp_path / how / "left").exists():
                    stalls[how] = Stalls(process.pid)
                if how in stalls and how not in gone:
                    stalls[how].seconds()
                if how not in gone and process.poll() is not None:
                    gone[how] = time.time()
            return len(gone) == len(WAYS)

        wait_until(all_gone, 120, "the end of all processes")
        for how, cluster in clusters.items():
            assert cluster.wait() == [WAYS[how]], cluster.output()
            assert "the script's own end" in cluster.output(), cluster.output()
            left[how] = float((tmp_path / how / "left").read_text())
    took = {how: round(gone[how] - left[how] - stalls[how].seconds(), 1) for how in WAYS}
    assert {how: seconds for how, seconds in took.items() if seconds > SHORT} == {}
