"""Plants bugs, one after another, and tells which tests notice each of them.

    python -m tests.planted [--only NAME ...] [--share 10 --seed N] [--likely] [--json FILE]

Each takes seconds if a test that it names notices it, else as long as all tests. Exits with 1 if
nobody notices one, if a test that did so also fails without it, or if a bug is broken.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from .bugs import Bug, read_bugs
from .catches import Catch, CaughtBy, catch, failing_without_bug
from .checkout import Copy

CHECKOUT = Path(__file__).parents[2]


def main() -> int:
    """Plants the chosen bugs; returns the exit status."""
    chosen = _arguments()
    bugs = _chosen(read_bugs(), chosen.only, chosen.share, chosen.seed)
    with tempfile.TemporaryDirectory(prefix="planted-") as place:
        copy = Copy.of(chosen.checkout.resolve(), Path(place))
        catches = []
        for bug in bugs:
            catches.append(catch(copy, bug, likely_only=chosen.likely))
            _show(catches[-1], len(catches), len(bugs))
        catches = _checked(copy, catches)
    if chosen.json:
        document = json.dumps([asdict(one) for one in catches], indent=2)
        chosen.json.write_text(document, encoding="utf-8")
    counts = Counter(one.by for one in catches)
    among = " among the likely tests" if chosen.likely else ""
    print(f"{len(catches)} bugs: " + ", ".join(f"{counts[by]} {by}" for by in CaughtBy) + among)
    return 1 if counts[CaughtBy.NOBODY] or counts[CaughtBy.BROKEN] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these bugs")
    parser.add_argument("--share", type=int, default=1, help="one in SHARE of them, by chance")
    parser.add_argument("--seed", default="", help="which ones these are: any word")
    parser.add_argument("--likely", action="store_true", help="run only tests that each bug names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="try the tests of another")
    return parser.parse_args()


def _chosen(bugs: list[Bug], only: Sequence[str] | None, share: int, seed: str) -> list[Bug]:
    unknown = set(only or ()) - {bug.name for bug in bugs}
    if unknown:
        sys.exit(f"There is no bug {', '.join(sorted(unknown))}.")
    bugs = [bug for bug in bugs if only is None or bug.name in only]
    if share > 1:
        names = random.Random(seed).sample([bug.name for bug in bugs], -(-len(bugs) // share))
        bugs = [bug for bug in bugs if bug.name in names]
    return bugs


def _show(one: Catch, number: int, total: int) -> None:
    print(f"{number}/{total} {one.name}: {one.by} {one.test} ({one.seconds:.0f} s)", flush=True)


def _checked(copy: Copy, catches: Sequence[Catch]) -> list[Catch]:
    """Returns the catches; one by a test that always fails is none."""
    failing = failing_without_bug(copy, catches)
    for test in sorted(failing):
        print(f"{test} fails without a bug too.")
    return [replace(one, by=CaughtBy.NOBODY) if one.test in failing else one for one in catches]


if __name__ == "__main__":
    # As ctrl+c does: no process and no copy stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
