"""Public scripts, with the usual lines changed, resume exactly."""

from __future__ import annotations

import pytest
from test_training_draws import train

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("script", ["masked_lm", "metric_learning", "reptile", "transformer"])
def test_a_public_script_resumes_exactly(tmp_path, script):
    [(first, in_place, cold)] = train(tmp_path, f"ported_{script}.py", "one-device", 1, seed=None)
    assert [in_place[step] for step in (5, 6, 7)] == [first[step] for step in (5, 6, 7)]
    assert list(cold) == [9, 10, 11, 12]
    assert cold[9] == in_place[9]
