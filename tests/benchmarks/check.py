"""How long a check of the demo takes, and how long the search for state that was not passed.

python tests/benchmarks/check.py [--workers N] [--variables N]
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf
from scripts.figures import report
from scripts.machine import on_quiet_machine

from tfckpt_trainer.training.check.untracked import find_untracked
from tfckpt_trainer.training.state.walk import find_state
from tfckpt_tui.services.exactness.check import CheckOptions, run_check

DEMO = (sys.executable, "-m", "tfckpt_trainer.examples.language_model")


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--variables", type=int, default=5_000)
    options = parser.parse_args()
    root = tf.Module()
    root.variables_of_model = [tf.Variable(0.0) for _ in range(options.variables)]
    checkpoint = tf.train.Checkpoint(model=root)
    began, cpu = time.perf_counter(), time.process_time()
    assert find_untracked(one.thing for one in find_state(checkpoint, {})) == []
    size = {"along": "variables", "at": options.variables}
    what = "search for state that was not passed"
    report(f"{what}, processor time", [time.process_time() - cpu], "s", **size)
    report(what, [time.perf_counter() - began], "s", **size)
    result = run_check(CheckOptions(DEMO, os.getcwd(), workers=options.workers))
    assert result.exact
    what = f"check of the demo, {result.steps} steps"
    report(what, [result.seconds], "s", along="workers", at=options.workers)


if __name__ == "__main__":
    main()
