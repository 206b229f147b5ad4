"""All state that a script passes is found and restored exactly, whatever holds it."""

from __future__ import annotations

import json
import signal

import pytest
from cluster import Cluster

pytestmark = pytest.mark.tensorflow

STEPS, SAVED = 18, 10

PARTS = [
    "losses", "recurrent", "generator", "discriminator", "wrapped", "optimizers", "mean", "seen",
    "listed", "shift", "curriculum", "words",
]  # fmt: skip


def lines_of(log, worker):
    text = log.with_name(f"{log.name}-{worker}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(
    scope="module",
    params=[("mirrored", 1, ()), ("multi-worker", 2, ()), ("multi-worker", 2, ("--in-parts",))],
    ids=["mirrored", "workers", "workers-in-parts"],
)
def passes(request, tmp_path_factory):
    """The steps after the save: first, after a restore in place, and after a cold start."""
    strategy, workers, how = request.param
    place = tmp_path_factory.mktemp("everything")

    def cluster(log, *arguments):
        words = ["--log", str(log), *arguments, *how]
        return Cluster(place / "run", SCRIPT, words, workers, strategy)

    with cluster(place / "first") as first:
        assert set(first.wait()) <= {-signal.SIGKILL}, first.output()
    with cluster(place / "cold", "--restart") as cold:
        assert cold.wait() == [0] * workers, cold.output()
    found = []
    for worker in range(workers):
        lines = lines_of(place / "first", worker)
        never_stopped = {e["step"]: e for e in lines if e["pass"] == 0 and e["step"] > SAVED}
        restored = {e["step"]: e for e in lines if e["pass"] == 1}
        resumed = {e["step"]: e for e in lines_of(place / "cold", worker)}
        found.append((worker, never_stopped, {"in place": restored, "cold": resumed}))
    return found


SCRIPT = "everything.py"


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_state_is_exact_after_a_restore(passes, part):
    for worker, never_stopped, again in passes:
        for how, steps in again.items():
            assert list(steps) == list(range(SAVED + 1, STEPS + 1)), how
            for step, entry in steps.items():
                expected = never_stopped[step][part]
                assert entry[part] == expected, f"{how}, worker {worker}, step {step}"
