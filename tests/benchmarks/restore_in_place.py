"""Going back in place against stop, start and restore: from the wish to the next step done.

    python tests/benchmarks/restore_in_place.py [--workers N] [--rounds N] [--megabytes MB]

Both ways go back to the same checkpoint of the same run, in turn. The restart is the quickest
there is without this library: stop without saving, start, restore.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tfckpt_trainer.launch.local import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.commandbox import CommandBox
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.health import is_live
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import CommandKind, CommandState, SupervisorStatus

sys.path.insert(0, str(Path(__file__).parents[1]))
from waiting import wait_until

SCRIPT = Path(__file__).with_name("scripts") / "timed_training.py"


class TimedRun:
    """A run whose steps are logged."""

    def __init__(self, run: RunDirectory, options: LaunchOptions) -> None:
        self.run = run
        self.options = options
        self.box = CommandBox(run)

    def start(self) -> None:
        launch(self.options)

    def steps(self) -> list[tuple[float, int, int]]:
        """When each step ended, its number, and the process."""
        try:
            lines = (self.run.root / "steps-0.log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(float(a), int(b), int(c)) for a, b, c in (line.split() for line in lines)]

    def ask(self, kind: CommandKind, **arguments: object) -> dict[str, object]:
        command = self.box.submit(kind, arguments, requested_by="benchmark")
        outcome = self.box.wait(command, timeout=120)
        assert outcome.state is CommandState.DONE, outcome
        return outcome.result

    def first_step_after(self, wish: float, step: int) -> float:
        """Seconds from `wish` until the step that follows `step` had ended, gone back to it.

        The same step of before, which may be under way at the time of the wish, follows `step`
        itself.
        """

        def found() -> float | None:
            for (_, earlier, _), (at, number, _) in itertools.pairwise(self.steps()):
                if at > wish and number == step + 1 and earlier != step:
                    return at
            return None

        return wait_until(found, 120, f"step {step + 1}") - wish

    def go_back_in_place(self, name: str, step: int) -> float:
        wish = time.time()
        self.ask(CommandKind.RESTORE, name=name)
        return self.first_step_after(wish, step)

    def go_back_by_restart(self, step: int) -> float:
        wish = time.time()
        self.stop()
        self.start()
        return self.first_step_after(wish, step)

    def stop(self) -> None:
        supervisor = load(self.run.supervisor_status, SupervisorStatus)
        self.ask(CommandKind.STOP, save=False)
        wait_until(lambda: not is_live(supervisor, time.time()), 60, "the end of the run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory))
        command = (sys.executable, str(SCRIPT), "--megabytes", str(options.megabytes))
        timed = TimedRun(
            run,
            LaunchOptions(
                run_directory=directory,
                command=command,
                working_directory=directory,
                workers=options.workers,
            ),
        )
        timed.start()
        wait_until(lambda: len(timed.steps()) > 20, 120, "20 steps")
        saved = timed.ask(CommandKind.SAVE)
        name = str(saved["name"])
        step = int(name.removeprefix("ckpt-"))
        pairs = []
        for _ in range(options.rounds):
            in_place = timed.go_back_in_place(name, step)
            restart = timed.go_back_by_restart(step)
            pairs.append((in_place, restart))
        timed.stop()
    ratios = [restart / in_place for in_place, restart in pairs]
    print(
        f"{options.workers} workers, {float(saved['bytes']) / 1e6:.1f} MB: in place "
        f"{statistics.median(a for a, _ in pairs):.3f} s, restart "
        f"{statistics.median(b for _, b in pairs):.2f} s, ratio "
        f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    )


if __name__ == "__main__":
    main()
