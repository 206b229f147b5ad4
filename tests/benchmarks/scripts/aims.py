"""What the figures of the benchmarks should reach at the sizes that users have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.figures import Figure, number


@dataclass(frozen=True)
class Aim:
    """What one figure should reach.

    Attributes:
        benchmark: The name of the benchmark.
        what: What it measures.
        at: The size; 0 for a figure at one size.
        at_most: The highest value that is good enough.
        at_least: The lowest value that is good enough.
    """

    benchmark: str
    what: str
    at: float = 0.0
    at_most: float = math.inf
    at_least: float = -math.inf

    @property
    def key(self) -> tuple[str, str, float]:
        """That of the figure."""
        return self.benchmark, self.what, self.at

    @property
    def words(self) -> str:
        """The aim in words, without its unit."""
        if self.at_most < math.inf:
            return f"at most {number(self.at_most)}"
        return f"at least {number(self.at_least)}"

    @property
    def what_of(self) -> str:
        """What it is of, in words."""
        return f"{self.benchmark}: {self.what}{f', {self.at:,g}' if self.at else ''}"

    def is_met_by(self, figure: Figure) -> bool:
        """Whether the median of a figure reaches it."""
        return self._is_met_by(figure.value)

    def verdict(self, figure: Figure) -> str:
        """Whether the median of a figure reaches it, and whether all rounds agree."""
        is_met = self.is_met_by(figure)
        agree = {self._is_met_by(figure.low), self._is_met_by(figure.high)} == {is_met}
        return ("✓" if is_met else "missed") + ("" if agree else ", not in all rounds")

    def _is_met_by(self, value: float) -> bool:
        return self.at_least <= value <= self.at_most


AIMS = (
    *(
        aim
        for at in (10, 1_000, 10_000, 100_000)
        for aim in (
            Aim("first_frame", "first frame", at, at_most=1.3),
            Aim("first_frame", "rows on screen", at, at_most=1.5),
        )
    ),
    Aim("first_frame", "rows on screen, first start", 100_000, at_most=1.6),
    Aim("first_frame", "resident memory", 100_000, at_most=120),
    *(
        aim
        for kind in ("foreign", "ours")
        for at in (10_000, 100_000)
        for aim in (
            Aim("listing", f"first look, in haste, {kind}", at, at_most=2),
            Aim("listing", f"first look, in full, {kind}", at, at_most=6),
            Aim("listing", f"nothing changed, {kind}", at, at_most=0.1),
            Aim("listing", f"nothing changed, an open app, {kind}", at, at_most=0.1),
        )
    ),
    Aim("one_of_many", "ls, ours: processor time", 100_000, at_most=6),
    Aim("one_of_many", "ls, ours: peak memory", 100_000, at_most=100),
    Aim("save", "save", 500, at_most=1.2),
    Aim("save", "save", 2000, at_most=1.2),
    Aim("save", "save by 2 workers", 500, at_most=0.6),
    Aim("save", "save by 2 workers", 2000, at_most=0.7),
    Aim("many_variables", "save", 5000, at_most=1.1),
    Aim("many_variables", "restore", 5000, at_most=1.1),
    *(
        Aim(
            "loop_overhead",
            f"1 worker, 1 step in a call{guards}: added processor time",
            at,
            at_most=50,
        )
        for guards in ("", ", 1 guard")
        for at in (0.5, 5, 50)
    ),
    Aim("parameter_servers", "asynchronous: a step", at_most=1.05),
    Aim("parameter_servers", "asynchronous, sent: a step", at_most=1.05),
    Aim("parameter_servers", "synchronous: a step", at_most=1.05),
    Aim("partitioned_save", "foreground save: memory of the chief", 1000, at_most=100),
    Aim("partitioned_save", "background save: memory of the chief", 1000, at_most=300),
    Aim("background_save", "background save: stall with the slower steps", 200, at_most=1.3),
    Aim("event_curves", "first curves, clock", 300, at_most=1000),
    Aim("event_curves", "all read: processor time", 300, at_most=1),
    Aim("event_curves", "resident memory of the app with all curves", 300, at_most=120),
    Aim("page_keys", "95 % of keys on all pages, beside a bare app", at_most=1.5),
    Aim("page_keys", "the slowest key, beside a bare app", at_most=3),
    Aim("terminal_load", "processor, 4 live workers", at_most=2),
    Aim("terminal_load", "processor, 64 live workers", at_most=2),
    Aim("terminal_load", "to the terminal, 4 live workers", at_most=0.7),
    Aim("commands", "processor time, `status`", at_most=4),
    Aim("commands", "processor time, `ls`", at_most=4),
    Aim("commands", "processor time, `save`", at_most=4),
    *(
        Aim("restore_in_place", f"restore in place on {workers}", at, at_most=most)
        for workers in ("1 worker", "2 workers")
        for at, most in ((500, 1.3), (100, 1.6))
    ),
    Aim("restart", "from a killed worker to the next step, with a standby process", at_most=1.2),
    Aim("verify", "verify, 1 GB in 100 tensors", at_least=95),
    Aim("verify", "verify, 400 MB in 2,000 tensors", at_least=85),
    Aim("verify", "verify, 4 MB in 2,000 tensors", at_least=50),
    Aim("verify", "verify on all cores, 1 GB in 100 tensors", at_least=95),
    Aim("verify", "verify on all cores, 400 MB in 2,000 tensors", at_least=85),
    Aim("verify", "`tfckpt-tui verify` of small checkpoints", 10_000, at_most=4),
    Aim("fleet", "first list", 1_000, at_most=2),
    Aim("fleet", "processor, the list of 1,000 runs", at_most=3),
)
"""In the order of the table that is made of them."""


def missed(figures: Sequence[Figure]) -> list[str]:
    """Returns a line for each figure that does not reach its aim."""
    known = {figure.key: figure for figure in figures}
    return [
        f"{known[aim.key].words}; the aim is {aim.words}"
        for aim in AIMS
        if aim.key in known and not aim.is_met_by(known[aim.key])
    ]
