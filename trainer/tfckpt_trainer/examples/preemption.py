"""A preemption: the run saves within the grace period and exits with the code for a requeue.

    tfckpt-tui launch RUN --foreground -- python -m tfckpt_trainer.examples.preemption; echo $?

Scripts need no code for this. This script simulates a scheduler: it sends itself SIGTERM at step
500 of its first start. The command exits with 143, on which schedulers requeue a job. Run it
again: it continues at step 500 and exits with 0.
"""

from __future__ import annotations

import argparse
import os
import signal

import tensorflow as tf

from tfckpt_trainer.examples.plain_checkpoint import Line
from tfckpt_trainer.training import TrainingRun, create_strategy


def main() -> None:
    """Fits a line and is preempted once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", help="checkpoint directory (the launcher gives it)")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--preempt-at", type=int, default=500)
    options = parser.parse_args()
    strategy = create_strategy("one-device", threads=1)
    line = Line()
    run = TrainingRun(options.run_dir, model=line, strategy=strategy, total_steps=options.steps)
    train_step = run.function(lambda step: line.step(step % 7))
    for number in run:
        train_step(tf.constant(number, tf.float32))
        if number + 1 == options.preempt_at and not run.state.get("preempted"):
            run.state["preempted"] = True
            os.kill(os.getpid(), signal.SIGTERM)
    print("done: code after the loop runs only at the end of training")


if __name__ == "__main__":
    main()
