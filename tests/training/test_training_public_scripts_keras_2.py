"""Scripts of the kinds that still train with Keras 2 resume exactly, and `status` says so."""

from __future__ import annotations

import pytest
from test_training_draws import exactness_of_run, train

from tfckpt_trainer.rundir.records.exactness import ExactnessLevel

pytestmark = [pytest.mark.tensorflow, pytest.mark.weekly, pytest.mark.needs("tf_keras")]

RECOMMENDERS = pytest.mark.needs("tensorflow_recommenders")


@pytest.mark.parametrize(("strategy", "workers"), [("one-device", 1), ("multi-worker", 2)])
@pytest.mark.parametrize(
    ("script", "go_back_at"),
    [
        ("bert", 7),
        # It sees the last step of each call.
        ("controller", 8),
        ("listwise", 7),
        pytest.param("ranking", 7, marks=RECOMMENDERS),
        pytest.param("retrieval", 7, marks=(RECOMMENDERS, pytest.mark.matrix)),
    ],
)
def test_a_public_script_resumes_exactly(tmp_path, script, go_back_at, strategy, workers):
    runs = train(
        tmp_path,
        f"ported_{script}.py",
        strategy,
        workers,
        seed=7,
        go_back_at=go_back_at,
        keras="tf_keras",
    )
    for first, in_place, cold in runs:
        again = [step for step in in_place if step in first]
        assert again
        assert [in_place[step] for step in again] == [first[step] for step in again]
        assert 12 in cold
        continued = [step for step in cold if step in in_place]
        assert continued
        assert [cold[step] for step in continued] == [in_place[step] for step in continued]
    found = exactness_of_run(tmp_path / "run")
    assert found.level is ExactnessLevel.EXPECTED, found.words
