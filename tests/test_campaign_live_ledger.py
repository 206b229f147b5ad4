"""The ledger of live runs notices what it is for, in numbers as plain TensorFlow reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from campaign.live_ledger import LiveLedger

Read = dict[str, dict[str, Any]]


def trained(*parts: tuple[int, int, int], value: float = 1.0) -> dict[str, Any]:
    """Returns the numbers of a checkpoint after parts of (attempt, branch, steps)."""
    line = [(attempt, branch) for attempt, branch, steps in parts for _ in range(steps)]
    return {
        "attempts": [float(attempt) for attempt, _ in line],
        "branches": [float(branch) for _, branch in line],
        "values": [value] * len(line),
        "elements": [float(at) for at in range(len(line))],
        "now": [*map(float, line[-1]), value],
        "weight": float(len(line)),
    }


@pytest.fixture
def ledger(tmp_path: Path) -> LiveLedger:
    """A run with three checkpoints, the last one of a second start."""
    for name in ("ckpt-2", "ckpt-4", "ckpt-6"):
        for ending in ("index", "data-00000-of-00001"):
            (tmp_path / f"{name}.{ending}").write_text(f"{name} {ending}")
    listed = "".join(f'all_model_checkpoint_paths: "ckpt-{n}"\n' for n in (2, 4, 6))
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "ckpt-6"\n{listed}')
    ledger = LiveLedger(tmp_path)
    ledger.note()
    return ledger


def healthy() -> Read:
    """What TensorFlow reads of it."""
    return {
        "ckpt-2": trained((100, 0, 2)),
        "ckpt-4": trained((100, 0, 4)),
        "ckpt-6": trained((100, 0, 4), (200, 0, 2)),
    }


def answered(ledger: LiveLedger, *words: str, **result: object) -> None:
    """Has a command answered that it was done."""
    ledger.acknowledge(words, 0, {"command": {"result": result}})


def judged(ledger: LiveLedger, read: Mapping[str, Any]) -> str:
    """Returns what is violated, as text."""
    return "\n".join(ledger.judge(read, "ckpt-6", replicas=1))


def test_a_second_start_goes_on_from_what_was_saved(ledger: LiveLedger) -> None:
    answered(ledger, "save", name="ckpt-4", step=4)
    answered(ledger, "pin", "ckpt-2")
    answered(ledger, "set", step=6, hyperparameters=[{"after": 3.0}])
    assert judged(ledger, healthy()) == ""


DAMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "a lost step": ({"elements": [0.0, 1.0, 2.0, 3.0, 5.0, 6.0]}, "other batches"),
    "a repeated batch": ({"elements": [0.0, 1.0, 2.0, 3.0, 3.0, 4.0]}, "other batches"),
    "a step too few": (trained((100, 0, 4), (200, 0, 1)), "it has 5 steps"),
    "a mixture of two checkpoints": ({"weight": 4.0}, "a weight of 4.0"),
    "a mixture of two attempts": ({"now": [100.0, 0.0, 1.0]}, "a mixture"),
    "another branch": (trained((100, 0, 4), (200, 1, 2)), "another line"),
    "training that nobody saved": (trained((100, 0, 3), (200, 0, 3)), "which nobody saved"),
    "an acknowledged save left behind": (
        trained((100, 0, 2), (200, 0, 4)),
        "ckpt-6 does not go on from ckpt-4",
    ),
    "an unreadable one": ({"error": "no magic"}, "no magic"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_in_the_numbers_is_told(ledger: LiveLedger, damage: str) -> None:
    answered(ledger, "save", name="ckpt-4", step=4)
    read, (changed, told) = healthy(), DAMAGES[damage]
    read["ckpt-6"].update(changed)
    assert told in judged(ledger, read)


def test_a_value_that_was_set_stays(ledger: LiveLedger) -> None:
    answered(ledger, "set", step=4, hyperparameters=[{"after": 3.0}])
    assert "3.0 was set after step 4" in judged(ledger, healthy())


def test_a_restore_that_was_left_behind_is_told(ledger: LiveLedger) -> None:
    answered(ledger, "restore", "--name", "ckpt-2", branch=1)
    assert "ckpt-2 was restored on branch 1, but then came" in judged(ledger, healthy())


def test_a_restore_brings_back_the_value(ledger: LiveLedger) -> None:
    answered(ledger, "set", step=3, hyperparameters=[{"after": 3.0}])
    answered(ledger, "restore", "--name", "ckpt-4", branch=0)
    read = healthy()
    assert judged(ledger, read) == ""
    read["ckpt-6"].update(values=[1.0] * 4 + [3.0] * 2, now=[200.0, 0.0, 3.0])
    assert "ckpt-4 was restored with [1.0], but then came [(3.0, 2)]" in judged(ledger, read)


def test_a_save_of_a_paused_run_is_of_its_step(ledger: LiveLedger) -> None:
    answered(ledger, "pause", step=2)
    answered(ledger, "save", name="ckpt-4", step=4)
    assert "paused at 2, and save at 4" in judged(ledger, healthy())


def test_a_save_that_was_answered_and_is_not_there_is_told(ledger: LiveLedger) -> None:
    answered(ledger, "save", name="ckpt-5", step=5)
    assert "save answered ckpt-5, which is not there" in judged(ledger, healthy())


def test_a_pinned_checkpoint_that_has_gone_is_told(ledger: LiveLedger, tmp_path: Path) -> None:
    answered(ledger, "pin", "ckpt-2")
    (tmp_path / "ckpt-2.index").rename(tmp_path.parent / "ckpt-2.index")
    assert "ckpt-2.index is nowhere" in judged(ledger, healthy())


def test_after_damage_the_checkpoint_before_it_counts(ledger: LiveLedger) -> None:
    answered(ledger, "save", name="ckpt-4", step=4)
    ledger.damage("ckpt-4")
    read = healthy()
    del read["ckpt-4"]
    assert judged(ledger, read) == ""
