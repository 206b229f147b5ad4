"""What a save and a restore take with many small variables, against TensorFlow's own.

    python tests/benchmarks/many_variables.py [--variables N...] [--rounds N]

Checkpoints have 2 MB. See `save.py`; a restore is one in place, verified before and proven after.
More than 10,000 variables are measured in one round: Keras alone takes half a minute to build them.
"""

from __future__ import annotations

import argparse

from save import measured, report_saves
from scripts.figures import report_ratio
from scripts.machine import on_quiet_machine


@on_quiet_machine
def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variables", type=int, nargs="+", default=[10, 1000, 5000, 20_000])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for count in given.variables:
        rounds = given.rounds if count <= 10_000 else 1
        words = ("--megabytes", 2, "--variables", count, "--restores", "--rounds", rounds)
        seconds = measured(1, *words)
        size = {"along": "variables", "at": count}
        report_saves("save", seconds, **size)
        report_ratio("restore", seconds["restore"], seconds["read"], "Checkpoint.read", **size)


if __name__ == "__main__":
    main()
