"""Directories of plain TensorFlow programs as a starting point."""

from __future__ import annotations

import json

import pytest
from cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    done = run_with_tensorflow(SCRIPTS / "adopting.py", tmp_path_factory.mktemp("plain"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("form", "first"),
    [("tutorial", 6), ("guide", 7), ("multi_worker_tutorial", 20), ("root", 20)],
)
def test_training_goes_on_at_the_step_of_the_checkpoint(results, form, first):
    assert results[form]["steps"] == list(range(first, first + 4))


@pytest.mark.parametrize("form", ["tutorial", "guide"])
def test_losses_go_on_as_those_of_the_plain_program(results, form):
    assert results[form]["losses"] == results[form]["expected"]


@pytest.mark.parametrize("form", ["multi_worker_tutorial", "root"])
def test_without_optimizer_state_the_weights_are_adopted(results, form):
    assert results[form]["losses"][0] == results[form]["expected"][0]
    assert any("optimizer" in message and "anew" in message for message in results[form]["journal"])


def test_no_save_is_lost_where_another_program_has_its_name(results):
    # Steps 8 and 10 are saved; the plain manager has a ckpt-8 of its own.
    found = results["tutorial"]
    assert found["names"] == ["ckpt-2", "ckpt-20", "ckpt-8", "ckpt-b1-10", "ckpt-b1-8"]
    assert found["branch"] == 1
    assert any("exists and is not of this run" in message for message in found["journal"])


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("tutorial", "step 6 from optimizer/"),
        ("guide", "model from net"),
        ("guide", "step 7 from step"),
        ("root", "step 20 from its name"),
    ],
)
def test_the_event_log_says_what_was_adopted_and_how(results, form, words):
    assert any(words in message for message in results[form]["journal"]), results[form]["journal"]


def test_a_model_of_other_shapes_is_refused_with_both_shapes(results):
    assert "float32 4×5 in the checkpoint and float32 4×3" in results["other shapes"]["error"]
