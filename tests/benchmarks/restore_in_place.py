"""Going back in place: the restore itself, against a plain read and against a restart.

    python tests/benchmarks/restore_in_place.py [--workers N...] [--ages S...] [--megabytes MB...]
                                                [--growth N...]

For each size and number of workers one run is started, and one of 100 MB for each number of workers
of `--growth`. It goes back to the same checkpoint at each age: seconds since its input began, at
the start or at the restore before. Of each it tells how long

- the command waited for the end of the step that was under way,
- the restore itself took, from the first check to the last proof on all workers,
- it took in all, from the wish to the end of the first step afterwards.

At the end the run is restarted once: stopped without a save, started, restored. Then one process
reads the same checkpoint by `tf.train.Checkpoint.read`, several times. Each worker reads all of it,
so as many processes as there are workers do the same at once.

The defaults take an hour: about `rounds * sum(ages)` seconds and one minute for each run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor, wait_for_end
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.formats import units

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from waiting import wait_until

SCRIPT = Path(__file__).with_name("scripts") / "timed_training.py"

LIMIT_SECONDS = 180

GROWTH_MEGABYTES = 100
"""Size of the checkpoints that show the growth with workers."""


@dataclass(frozen=True)
class Restore:
    """How long one restore took, in seconds."""

    age: float
    waited: float
    restored: float
    in_all: float


class TimedRun:
    """A run whose steps are logged."""

    def __init__(self, run: RunDirectory, options: LaunchOptions) -> None:
        self.run = run
        self.options = options
        self.box = CommandQueue(run)

    def start(self) -> None:
        """Starts the workers."""
        launch(self.options)

    def steps(self) -> list[tuple[float, int, int]]:
        """When each step ended, its number, and the process."""
        try:
            lines = (self.run.root / "steps-0.log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(float(a), int(b), int(c)) for a, b, c in (line.split() for line in lines)]

    def ask(self, kind: CommandKind, **arguments: object) -> Command:
        """Asks the trainer, and returns the outcome."""
        command = self.box.submit(kind, arguments, requested_by="benchmark")
        outcome = self.box.wait(command, timeout=LIMIT_SECONDS)
        assert outcome.state is CommandState.DONE, outcome
        return outcome

    def first_step_after(self, wish: float, step: int) -> float:
        """When the step that follows `step` had ended, gone back to it after `wish`.

        The same step of before, which may be under way at the time of the wish, follows `step`
        itself.
        """

        def found() -> float | None:
            for (_, earlier, _), (at, number, _) in itertools.pairwise(self.steps()):
                if at > wish and number == step + 1 and earlier != step:
                    return at
            return None

        return wait_until(found, LIMIT_SECONDS, f"step {step + 1}")

    def go_back_in_place(self, name: str, step: int, age: float) -> Restore:
        """Restores the checkpoint of `step`."""
        wish = time.time()
        command = self.ask(CommandKind.RESTORE, name=name)
        agreed = next(t.at for t in command.history if t.state is CommandState.AGREED)
        entries = [e for e in read_entries(self.run) if e.kind is EventKind.RESTORE]
        return Restore(
            age=age,
            waited=agreed - wish,
            restored=float(entries[-1].details["seconds"]),
            in_all=self.first_step_after(wish, step) - wish,
        )

    def go_back_by_restart(self, step: int) -> float:
        """Stops the run without a save, starts it, and returns the seconds this took."""
        wish = time.time()
        self.stop()
        self.start()
        return self.first_step_after(wish, step) - wish

    def stop(self) -> None:
        """Stops the run without a save."""
        self.ask(CommandKind.STOP, save=False)
        wait_for_end(self.run, LIMIT_SECONDS, lambda _: None)


def measure(
    what: str, workers: int, megabytes: float, ages: list[float], rounds: int, **size: Any
) -> None:
    """Measures one size, and prints what it found.

    Args:
        what: What it is called.
        workers: How many workers train.
        megabytes: Size of the checkpoint.
        ages: Seconds since the input began, of each restore.
        rounds: How often each of them is measured.
        size: What `report` takes: which of these numbers grows.
    """
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory))
        command = (sys.executable, str(SCRIPT), "--megabytes", str(megabytes))
        timed = TimedRun(
            run,
            LaunchOptions(
                run_directory=directory,
                command=command,
                working_directory=directory,
                workers=workers,
            ),
        )
        try:
            timed.start()
            wait_until(lambda: len(timed.steps()) > 5, LIMIT_SECONDS, "5 steps")
            began = timed.steps()[0][0]
            saved = timed.ask(CommandKind.SAVE).result
            name = str(saved["name"])
            step = int(name.removeprefix("ckpt-"))
            restores = []
            for age in ages * rounds:
                time.sleep(max(0.0, began + age - time.time()))
                restores.append(timed.go_back_in_place(name, step, age))
                began = time.time()
            restart = timed.go_back_by_restart(step)
            timed.stop()
            plain = plain_read(command, run.root / name)
            at_once = plain_read(command, run.root / name, workers) if workers > 1 else plain
        finally:
            stop_supervisor(run, 0)
    restored = [restore.restored for restore in restores]
    report_ratio(what, restored, [plain] * len(restores), "a plain Checkpoint.read", **size)
    if workers > 1:
        many = f"{workers} of these at once"
        report_ratio(f"{what}, each", restored, [at_once] * len(restores), many, **size)
    for age in ages:
        of_age = [restore for restore in restores if restore.age == age]
        at_age = f"{what}, {age:g} s after the last"
        report(f"{at_age}: the restore", [1e3 * r.restored for r in of_age], "ms", **size)
        report(f"{at_age}: with the steps", [1e3 * r.in_all for r in of_age], "ms", **size)
        waited = [1e3 * restore.waited for restore in of_age]
        report(f"{at_age}: wait for the step", waited, "ms", **size)
    in_all = [restore.in_all for restore in restores]
    report_ratio(f"{what}, with the steps", in_all, [restart] * len(in_all), "a restart", **size)


def plain_read(command: tuple[str, ...], prefix: Path, processes: int = 1) -> float:
    """Returns the median seconds of TensorFlow's own read, in processes that read at once."""
    readers = [
        subprocess.Popen([*command, "--read", str(prefix)], stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    said = [reader.communicate(timeout=LIMIT_SECONDS)[0] for reader in readers]
    return statistics.median(chain(*(json.loads(lines.splitlines()[-1]) for lines in said)))


@on_quiet_machine
def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ages", type=float, nargs="+", default=[5, 30, 120, 300])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1, 100, 500])
    parser.add_argument("--growth", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    often = (options.ages, options.rounds)
    for megabytes, workers in itertools.product(options.megabytes, options.workers):
        what = f"restore in place on {units.count(workers, 'worker')}"
        measure(what, workers, megabytes, *often, along="MB", at=megabytes)
    for workers in options.growth:
        what = f"restore in place of {GROWTH_MEGABYTES} MB"
        measure(what, workers, GROWTH_MEGABYTES, *often, along="workers", at=workers)


if __name__ == "__main__":
    main()
