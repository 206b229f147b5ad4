"""A process that runs TensorBoard until the run has ended; it runs detached from the app."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_tui.services.runs.brief_reading import brief_account

LOOK_SECONDS = 2.0
"""Seconds between two checks; the run has to have ended in two of them."""

END_SECONDS = 5.0


def keep(root: Path, command: Sequence[str], pause: float = LOOK_SECONDS) -> int:
    """Runs a command until it exits or the run in `root` has ended.

    Returns:
        The exit status of the command.
    """
    process = subprocess.Popen(command)
    had_ended = False
    while process.poll() is None:
        has_ended = brief_account(root).state in HAS_ENDED
        if has_ended and had_ended:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            break
        had_ended = has_ended
        time.sleep(pause)
    return process.wait()


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:]))
