"""Logs with W&B, offline, once a second, what the workers of `simulated_run.py` report.

python wandb_run.py DIRECTORY WORKERS SECONDS
"""

from __future__ import annotations

import math
import os
import sys
import time


def main() -> None:
    directory, workers, seconds = sys.argv[1:]
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=directory)
    import wandb

    run = wandb.init(project="simulated")
    for step in range(1, int(seconds)):
        loss = 2.0 + 3.5 * math.exp(-step / 180)
        values = {"loss": loss, "examples_per_second": 400.0 + step % 13, "step_seconds": 0.1}
        for index in range(int(workers)):
            values |= {
                f"worker_{index}/step_seconds": 0.1 + index * 1e-3 + step % 7 * 1e-4,
                f"worker_{index}/cpu_percent": 90.0 + step % 10,
                f"worker_{index}/memory": 900_000_000 + step * 1000,
            }
        run.log(values, step=step)
        time.sleep(1)


if __name__ == "__main__":
    main()
