"""Runs failed tests once more, each alone, to tell bad luck from defects.

Only tests that start real processes are repeated, and at most three. Those that fail again, and any
others, fail the run. Those that pass are named in the last lines: mend them before anything else.

usage: .ci/repeat_failed.py OUTPUT    OUTPUT is the file with what the first run printed
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

MOST = 3
STARTS_PROCESSES = "tensorflow or e2e or faults or cluster"
FAILED = Path(".pytest_cache/v/cache/lastfailed")
PYTEST = (sys.executable, "-m", "pytest", "-n", "0")


def main(output: Path) -> int:
    """Returns the exit status of the gate: 0 if each failed test passes now."""
    named = list(json.loads(FAILED.read_text())) if FAILED.exists() else []
    failed = {without_group(name): name for name in named}
    if not 1 <= len(failed) <= MOST:
        return refuse(f"{len(failed)} tests failed. From 1 to {MOST} are repeated.")
    units = sorted(set(failed) - starting_processes(failed))
    if units:
        return refuse(f"Tests that start no process are not repeated: {', '.join(units)}")
    print(f"\nRepeating {len(failed)} failed tests, each alone.", flush=True)
    again = [name for name in failed if subprocess.run([*PYTEST, name], check=False).returncode]
    if again:
        return refuse(f"Failed twice: {', '.join(again)}")
    text = output.read_text(errors="replace")
    for name, printed in failed.items():
        print(f"unstable: {name}, first failure: {first_message(printed, text)}")
    return 0


def refuse(reason: str) -> int:
    """Says why the run failed."""
    print(f"\n{reason}", file=sys.stderr)
    return 1


def without_group(name: str) -> str:
    """Returns the node id of a test without the group that xdist appends, as in `NAME@GROUP`."""
    return name.rpartition("@")[0] if name.rfind("@") > name.rfind("]") else name


def starting_processes(names: Iterable[str]) -> set[str]:
    """Returns those of the tests that start real processes, by their markers."""
    words = [*PYTEST, "--collect-only", "-q", "-m", STARTS_PROCESSES, *names]
    listed = subprocess.run(words, capture_output=True, text=True, check=False)
    return set(listed.stdout.splitlines()) & set(names)


def first_message(name: str, output: str) -> str:
    """Returns what the summary that pytest printed says about a test."""
    found = re.search(rf"^(?:FAILED|ERROR) {re.escape(name)} - (.+)$", output, re.MULTILINE)
    return found[1] if found else "see above"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
