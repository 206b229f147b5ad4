"""Doubts about the order of checkpoints, in directories of any size."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from executed_lines import ExecutedLines
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.scan.order import find_order_doubt


def placed_by_step(times: list[int]) -> list[Checkpoint]:
    """Checkpoints of one line with these file times, newest first."""
    return [
        Checkpoint(
            name=f"ckpt-{step}",
            step=step,
            branch=0,
            state=CheckpointState.COMPLETE,
            size=0,
            shards=1,
            saved_at=float(time),
            is_placed_by_step=True,
        )
        for step, time in zip(range(len(times), 0, -1), times, strict=True)
    ]


@given(st.lists(st.integers(0, 9), max_size=12))
def test_it_is_the_newest_that_was_not_written_last(times: list[int]) -> None:
    line = placed_by_step(times)
    found = find_order_doubt(line)
    pairs = [(a, b) for a, b in combinations(line, 2) if b.saved_at > a.saved_at]
    assert (found is None) == (not pairs)
    if found is not None:
        assert found.higher is pairs[0][0]
        after = line[line.index(found.higher) + 1 :]
        assert found.later is max(after, key=lambda one: one.saved_at)


def test_its_cost_grows_like_the_directory() -> None:
    costs = []
    for count in (200, 2000):
        line = placed_by_step(list(range(count, 0, -1)))
        with ExecutedLines() as lines:
            assert find_order_doubt(line) is None
        costs.append(lines.count)
    assert costs[1] < 15 * costs[0]
