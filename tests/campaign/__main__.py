"""Runs the campaign; see the package."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), *(str(TESTS / part) for part in ("tui", "catalog", "bundle"))]


from .areas import Area, Outcome  # noqa: E402
from .command_pairs import CommandPairs  # noqa: E402
from .fast_time import FastTime  # noqa: E402
from .hostile_input import HostileInput  # noqa: E402
from .live_workers import LiveWorkers  # noqa: E402
from .power_cuts import PowerCuts  # noqa: E402
from .random_keys import RandomKeys  # noqa: E402
from .slurm_hosts import SlurmHosts  # noqa: E402
from .storage_faults import StorageFaults  # noqa: E402
from .strangers_files import StrangersFiles  # noqa: E402
from .trainer_faults import TrainerFaults  # noqa: E402
from .two_accounts import TwoAccounts  # noqa: E402

AREAS = (
    StorageFaults, PowerCuts, CommandPairs, StrangersFiles, TwoAccounts, RandomKeys, HostileInput,
)  # fmt: skip
ALL = (*AREAS, TrainerFaults, LiveWorkers, SlurmHosts, FastTime)
"""The cases of the last four take too long for a share of two minutes."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class Row(NamedTuple):
    """What came of an area.

    Attributes:
        area: Its name.
        cases: How many cases ran.
        injected: How many faults were in them.
        survived: How many of these were in cases without a violation.
        violations: Each violation, with the line that repeats it.
    """

    area: str
    cases: int
    injected: int
    survived: int
    violations: list[tuple[str, str]]


def main() -> int:
    """Runs the chosen areas; returns 1 if anything was violated."""
    chosen = arguments()
    rows = []
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="campaign-", dir=memory) as directory:
        place = Path(directory)
        for part in ("CACHE", "STATE", "CONFIG", "DATA"):
            os.environ[f"XDG_{part}_HOME"] = str(place / part)
        areas = [make for make in ALL if make.name == chosen.only] or AREAS
        for make in areas:
            (place / make.name).mkdir()
            area = make(place / make.name)
            cases = [chosen.case] if chosen.case else area.cases(Random(f"{chosen.seed}"))
            rows.append(ran(area, cases, place / "case", chosen.budget / len(areas)))
    print(table(rows))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([row._asdict() for row in rows], indent=2))
    return 1 if any(row.violations for row in rows) else 0


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument(
        "--budget", type=seconds, default="10m", help="30s, 10m or 2h; for all areas"
    )
    parser.add_argument("--seed", default="0", help="the order of the cases: any word")
    parser.add_argument("--only", choices=[make.name for make in ALL], help="only this area")
    parser.add_argument("--case", help="only this case of the area, as a violation names it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what came of it there")
    chosen = parser.parse_args()
    if chosen.case and chosen.only is None:
        parser.error("--case needs --only AREA")
    return chosen


def seconds(text: str) -> float:
    """Reads a duration."""
    match = re.fullmatch(r"(\d+)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is no duration such as 30s, 10m or 2h")
    return float(int(match[1]) * _UNITS[match[2]])


def ran(area: Area, cases: Iterable[str], place: Path, budget: float) -> Row:
    """Runs cases until there are no more, or the budget of the area is used."""
    row = Row(area.name, 0, 0, 0, [])
    deadline = time.monotonic() + budget
    for case in cases:
        if row.cases and time.monotonic() > deadline:
            break
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        outcome = outcome_of(area, case, place)
        again = f"python -m tests.campaign --only {area.name} --case {case!r}"
        violations = [(again, what) for what in outcome.violations]
        for violation in violations:
            print(told(*violation), file=sys.stderr, flush=True)
        row = row._replace(
            cases=row.cases + 1,
            injected=row.injected + outcome.injected,
            survived=row.survived + (0 if outcome.violations else outcome.injected),
            violations=[*row.violations, *violations],
        )
        if sys.stderr.isatty():
            print(f"\r{area.name}: {row.injected:,}", end="", file=sys.stderr)
    return row


def outcome_of(area: Area, case: str, place: Path) -> Outcome:
    """Runs a case. An error of the campaign itself is a violation: the other cases still run."""
    try:
        return area.run(case, place)
    except Exception as error:
        return Outcome(0, (f"The case itself failed: {type(error).__name__}: {error}",))


def told(again: str, what: str) -> str:
    """Returns a violation as text."""
    return f"{again}\n    {what}"


def table(rows: Sequence[Row]) -> str:
    """Returns the outcome as text."""
    lines = [f"{'area':<12}{'cases':>9}{'injected':>11}{'survived':>11}{'violated':>10}"]
    for row in rows:
        violated = len({again for again, _ in row.violations})
        lines.append(
            f"{row.area:<12}{row.cases:>9,}{row.injected:>11,}{row.survived:>11,}{violated:>10,}"
        )
    for row in rows:
        lines += [told(*violation) for violation in row.violations]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
