"""A process that leaves waits for no thread of tf.data, and leaves all that it wrote."""

from __future__ import annotations

import contextlib

import pytest
from training_cluster import Cluster

from weekly import weekly

pytestmark = pytest.mark.tensorflow

WAYS = {"end": 0, "fit": 0, "sigterm": 143}
MORE_WAYS = {"break": 0, "error": 1, "stop": 0, "keras-stop": 0, "keras-sigterm": 143}
"""With their exit statuses."""


@pytest.fixture
def no_false_alarm():
    """The script has an iterator that it did not pass, so it is told."""


@pytest.mark.parametrize("ways", [WAYS, *weekly(MORE_WAYS)], ids=["usual", "more"])
def test_whichever_way_it_leaves_a_process_does_not_wait_for_tf_data(tmp_path, ways):
    with contextlib.ExitStack() as stack:
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
            for how in ways
        }
        for how, cluster in clusters.items():
            assert cluster.wait() == [ways[how]], cluster.output()
            assert "the script's own end" in cluster.output(), cluster.output()
            # What a script or Keras destroys while it trains is their own affair.
            if not how.startswith("keras"):
                ends = cluster.run_dir.with_name(f"{how}-iterators").read_text().splitlines()
                assert "created" in ends
                assert "main thread" not in ends, how
