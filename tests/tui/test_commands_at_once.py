"""Two commands at once end, and leave a run, as if one had come after the other."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from campaign.ledger import Ledger, checkpoints_in
from campaign.storage_faults import COMMANDS, CopiedRuns, do, on_disk
from child_processes import interleaved
from weekly import weekly

CHANGING = ("prune", "undo", "empty", "delete", "pin", "unpin", "next-start", "retention")
SOON = [("pin", "delete"), ("pin", "prune"), ("empty", "undo"), ("next-start", "delete")]
"""Pairs that each change tries: the first has few calls, and the second takes what it is about."""


class Left(NamedTuple):
    """What commands have left of a run.

    Attributes:
        here: The files of each checkpoint.
        trashed: The names in the trash.
        listed: What the state file lists, and the latest one.
        pins: The names that are pinned.
    """

    here: dict[str, list[str]]
    trashed: set[str]
    listed: list[str]
    pins: list[str]

    @classmethod
    def of(cls, root: Path) -> Left:
        """Looks at a run."""
        lines = (root / "checkpoint").read_text().splitlines()
        return cls(
            {name: sorted(files) for name, files in checkpoints_in(root).items()},
            Ledger(root).in_trash(),
            sorted(line for line in lines if "_path" in line),
            sorted(path.name for path in root.glob(".tfckpt/pins/*")),
        )


class Pair:
    """Two commands on copies of a run."""

    def __init__(self, place: Path, first: str, second: str) -> None:
        self.names = first, second
        self._runs, self._place, self._made = CopiedRuns(place), place, 0
        self.calls = self._runs.calls_of(first)

    def new(self) -> Path:
        """Returns the place of another copy, on which both commands are possible."""
        self._made += 1
        place = self._place / str(self._made)
        place.mkdir()
        self._runs.prepared(place, *self.names)
        return place

    def in_order(self, *names: str) -> tuple[dict[str, int], Left]:
        """Returns how commands end, and what they leave, one after the other."""
        place = self.new()
        codes = {name: do(COMMANDS[name][-1], place)[0] for name in names}
        return codes, Left.of(place / "run")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("first", "second"),
    [*SOON, *weekly(*(p for p in product(CHANGING, CHANGING) if p[0] != p[1] and p not in SOON))],
)
def test_two_commands_at_once_are_as_one_after_the_other(
    tmp_path: Path, first: str, second: str
) -> None:
    pair = Pair(tmp_path, first, second)
    orders = [pair.in_order(first, second), pair.in_order(second, first)]
    # A command that is refused beside the other one changes nothing.
    alone = [pair.in_order(name) for name in (first, second)]
    for number in range(1, pair.calls + 1):
        place = pair.new()
        ended = interleaved(
            lambda disk, place=place: on_disk(COMMANDS[first][-1], place, disk),
            lambda place=place: on_disk(COMMANDS[second][-1], place),
            number,
        )
        codes = {first: ended[0][0], second: ended[1][0]}
        allowed = [left for at, left in orders if any(codes.values()) or at == codes]
        allowed += [left for at, left in alone if any(codes[name] for name in {*codes} - {*at})]
        assert Left.of(place / "run") in allowed, f"at call {number}: {ended}"
