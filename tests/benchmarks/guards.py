"""What conditions of guards add to a step while none fires, and how often noise fires a spike.

    python tests/benchmarks/guards.py [--steps N] [--noise-steps N]

The metrics are normal noise. The time includes the loop over the guards.
"""

from __future__ import annotations

import argparse
import random
import time

from scripts.figures import report

from tfckpt_trainer.guards.conditions import CONDITIONS, Spike, StepReading
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.guards.watch import GuardWatch

QUIET = {"no_improvement": "no_improvement loss steps=100000000", "above": "above loss 100"}
"""Conditions whose examples would fire."""


NOISE = {
    "normal": lambda source: source.gauss(0.0, 1.0),
    "uniform": lambda source: source.random(),
    "Laplace": lambda source: source.expovariate(1.0) * source.choice((-1, 1)),
    "exponential": lambda source: source.expovariate(1.0),
}
"""Noise without a trend."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--noise-steps", type=int, default=1_000_000)
    options = parser.parse_args()
    measure(options.steps)
    count_false_spikes(options.noise_steps)


def measure(steps: int) -> None:
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
        assert not firings, text
        report(text, [(time.perf_counter() - began) / steps * 1e6], "µs a step")


def count_false_spikes(steps: int) -> None:
    for name, draw in NOISE.items():
        source, spike = random.Random(1), Spike("loss")
        firings = sum(
            spike.look(StepReading(step, 0.0, metrics={"loss": draw(source)})) is not None
            for step in range(steps)
        )
        what = f"false firings of {spike} on {name} noise"
        report(what, [firings], "firings", along="steps", at=steps)


if __name__ == "__main__":
    main()
