"""What a save beside training costs against one in the foreground, the steps after it included.

    python tests/benchmarks/background_save.py [--megabytes MB] [--rounds N]

Both run in the same process in turn: two runs of the same model, each with a step that changes
every variable, as an optimizer does. The figures are those that the library itself records:
how long training stood still, and by how much the steps beside and after the save were longer.

The least that a background save can cost is told beside it: how much longer such steps are in sum
while a thread copies and checksums the same bytes, on the cores that the steps use.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tensorflow as tf
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import SaveCost

VARIABLES = 50
STEPS_BETWEEN = 60
LEAST_ROUNDS = 3


class Model(tf.Module):
    """So many bytes of variables, every one of which changes in each step."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        elements = megabytes * (1 << 20) // 4 // VARIABLES
        self.weights = [tf.Variable(tf.random.normal([elements])) for _ in range(VARIABLES)]
        self.small = tf.Variable(tf.random.normal([600, 600]))

    def update(self) -> tf.Tensor:
        """Changes every variable; half of the time of a step goes into multiplications."""
        for weight in self.weights:
            weight.assign_sub(0.001 * weight)
        product = self.small
        for _ in range(8):
            product = tf.linalg.matmul(product, self.small) / 100.0
        return tf.reduce_mean(product)


def costs(run_dir: Path, model: Model, options: SaveOptions, saves: int) -> list[SaveCost]:
    """Trains until so many saves and their after-effects are over; returns what each cost."""
    run = TrainingRun(
        run_dir,
        model=model,
        save_every_steps=STEPS_BETWEEN,
        saving=options,
        total_steps=STEPS_BETWEEN * (saves + 1) + 1,
    )
    step = run.function(lambda _: model.update())
    for batch in run:
        step(tf.constant(batch))
        # Time for a save beside training to end before the next is due.
        time.sleep(0.002)
    found = Records(RunDirectory(run.directory)).look().values()
    records = [packed.unpack() for packed in found]
    measured = sorted((record for record in records if record.cost), key=lambda r: r.step)
    return [record.cost for record in measured[1:-1] if record.cost is not None]


def least_slowing(model: Model) -> float:
    """Returns by how many seconds steps are longer in sum beside a thread that reads the bytes."""
    step = tf.function(model.update)

    def seconds_of_a_step() -> float:
        time.sleep(0.002)
        began = time.perf_counter()
        step()
        return time.perf_counter() - began

    step()
    usual = statistics.median(seconds_of_a_step() for _ in range(STEPS_BETWEEN))
    slowing = 0.0
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(copy_and_checksum, model.weights)
        while not reading.done():
            slowing += seconds_of_a_step() - usual
        reading.result()
    return slowing


def copy_and_checksum(weights: Sequence[tf.Variable]) -> None:
    """Copies all bytes and computes their checksums."""
    for weight in weights:
        crc32c(weight.numpy().copy())


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    model = Model(given.megabytes)
    both: dict[bool, list[SaveCost]] = {False: [], True: []}
    for _ in range(given.rounds):
        for background in both:
            with tempfile.TemporaryDirectory() as directory:
                options = SaveOptions(background=background)
                both[background] += costs(Path(directory), model, options, 3)
    stall = {way: statistics.median(c.stall_seconds for c in both[way]) for way in both}
    after = {way: statistics.median(c.slowing_seconds or 0.0 for c in both[way]) for way in both}
    size = {"along": "MB", "at": given.megabytes}
    for background, name in ((False, "foreground"), (True, "background")):
        report(f"{name} save: training stands still", [stall[background] * 1e3], "ms", **size)
        report(f"{name} save: later steps, longer in sum", [after[background] * 1e3], "ms", **size)
    against = "a foreground save"
    report_ratio("stall", [stall[True]], [stall[False]], against, **size)
    report_ratio(
        "stall with the slower steps",
        [stall[True] + after[True]],
        [stall[False] + after[False]],
        against,
        **size,
    )
    least = [1e3 * least_slowing(model) for _ in range(LEAST_ROUNDS * given.rounds)]
    report("copy and checksum beside steps: longer in sum", least, "ms", **size)
    report_ratio(
        "background save: stall with the slower steps",
        [1e3 * (stall[True] + after[True])],
        [statistics.median(least)],
        "a copy and a checksum of the bytes beside steps",
        **size,
    )


if __name__ == "__main__":
    main()
