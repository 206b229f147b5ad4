"""What each condition of a guard adds to a step while none fires, in microseconds.

    python tests/benchmarks/guards.py [--steps N]

The metrics are normal noise. The time includes the loop over the guards.
"""

from __future__ import annotations

import argparse
import random
import time

from tfckpt_trainer.guards.conditions import CONDITIONS, StepReading
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.guards.watch import GuardWatch

QUIET = {"no_improvement": "no_improvement loss steps=100000000", "above": "above loss 100"}
"""Conditions whose examples would fire."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000)
    steps = parser.parse_args().steps
    source = random.Random(1)
    readings = [
        StepReading(
            step=step,
            at=float(step),
            seconds=source.uniform(0.1, 0.11),
            metrics={"loss": source.gauss(2.0, 0.1), "accuracy": 0.9, "gradient_norm": 1.0},
            saved_at=float(step),
            disk_full_in=1e9,
        )
        for step in range(steps)
    ]
    for kind in CONDITIONS:
        text = QUIET.get(kind.name, kind.example)
        watch = GuardWatch([Guard.parse(f"{text}: notify")])
        began = time.perf_counter()
        firings = sum(len(watch.step_done(reading)) for reading in readings)
        micros = (time.perf_counter() - began) / steps * 1e6
        print(f"{micros:6.2f} µs a step  {text}" + f"  (fired {firings} times)" * bool(firings))


if __name__ == "__main__":
    main()
