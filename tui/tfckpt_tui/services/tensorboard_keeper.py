"""Keeps TensorBoard while a run goes on: `python -m tfckpt_tui.services.tensorboard_keeper`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfckpt_trainer.rundir.health import HAS_ENDED
from tfckpt_tui.settings.recent_runs import summarize_run

LOOK_SECONDS = 2.0
"""How often the run is looked at; it has to have ended twice in a row."""

END_SECONDS = 5.0


def keep(root: Path, command: Sequence[str], pause: float = LOOK_SECONDS) -> int:
    """Runs a command until it ends by itself or the run in `root` has ended.

    Returns:
        The exit status of the command.
    """
    process = subprocess.Popen(command)
    had_ended = False
    while process.poll() is None:
        has_ended = summarize_run(root, time.time()).state in HAS_ENDED
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
