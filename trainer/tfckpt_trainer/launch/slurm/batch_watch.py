"""Starts the supervisor of a batch job, and again if it is killed: `python -m …batch_watch RUN`.

It is the process that Slurm starts, and passes Slurm's signals on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tfckpt_trainer.launch.slurm.earlier_start import launch_in_app
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventKind
from tfckpt_trainer.scripts.exit_statuses import exit_words

AGAIN = "--again"
"""Tells a supervisor that an earlier one of the same start of the job was killed."""

RESTARTED = {"lost": "supervisor", "restarted": True}
"""Details of the event that a killed supervisor is started again."""

MOST_DEATHS = 3
"""After this many further deaths in a row, the job ends."""

SETTLED_SECONDS = 600.0
"""A supervisor that has lived this long is counted as the first again."""

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_AWAITED = {*_PASSED_ON, signal.SIGCHLD}
_ENDS = {signal.SIGTERM, signal.SIGINT}


class BatchWatch:
    """Keeps a supervisor running until it ends by itself, or the job ends."""

    def __init__(
        self,
        run: RunDirectory,
        command: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates a watch.

        Args:
            run: The run directory.
            command: Starts the supervisor.
            clock: Returns seconds; never goes back.
        """
        self._run = run
        self._command = command
        self._clock = clock
        self._told_to_end = False

    def run(self) -> int:
        """Supervises until the end; returns the exit status of the supervisor, as a shell does."""
        # They are awaited, so that none is lost between two supervisors.
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        deaths = 0
        while True:
            began = self._clock()
            status = self._supervise([AGAIN] if deaths else [])
            if status >= 0 or self._told_to_end:
                return status if status >= 0 else 128 - status
            deaths = 1 if self._clock() - began >= SETTLED_SECONDS else deaths + 1
            if deaths > MOST_DEATHS:
                self._give_up(status, deaths)
                return 128 - status
            note_event(
                self._run,
                EventKind.NOTE,
                f"The supervisor {exit_words(status)}. It starts again in the same "
                "job, when the workers have saved and ended.",
                by=SUPERVISOR,
                details=RESTARTED,
            )

    def _supervise(self, arguments: Sequence[str]) -> int:
        """Runs one supervisor, and passes signals on; returns its status, negative for a signal."""
        supervisor = subprocess.Popen(
            [*self._command, *arguments],
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED),
        )
        while (status := supervisor.poll()) is None:
            number = signal.sigwait(_AWAITED)
            self._told_to_end |= number in _ENDS
            if number in _PASSED_ON:
                supervisor.send_signal(number)
        return status

    def _give_up(self, status: int, deaths: int) -> None:
        words = f"The supervisor {exit_words(status)}: the {deaths}th time in a row. The job ends."
        note_event(self._run, EventKind.FAILED, words, by=SUPERVISOR)
        sys.stderr.write(f"{words} {launch_in_app(self._run)}\n")


def main(arguments: Sequence[str]) -> int:
    """Watches the supervisor of a run directory."""
    root = os.path.realpath(arguments[0])
    module = "tfckpt_trainer.launch.slurm.batch_step"
    return BatchWatch(RunDirectory(Path(root)), [sys.executable, "-P", "-m", module, root]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
