"""Supervises a run on this machine, without a terminal: `python -m …local_supervisor RUN`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tfckpt_trainer.errors import ExitCode, LaunchError, TfckptError, describe_error
from tfckpt_trainer.launch.local.local_starter import LocalStarter
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.lock import take_lock
from tfckpt_trainer.launch.supervision.supervisor import Supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.storage.documents import load, replace_newer_documents


def main(arguments: Sequence[str] | None = None) -> int:
    """Supervises the run that `launch.json` in the run directory describes."""
    parser = argparse.ArgumentParser(prog="python -m tfckpt_trainer.launch.local.local_supervisor")
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--lock", type=int, help="descriptor that holds the lock; runs detached")
    given = parser.parse_args(arguments)
    run = RunDirectory(Path(os.path.realpath(given.run)))
    if given.lock is not None and os.fork():
        # The launch waits for this process only: its child runs on by itself.
        os._exit(0)
    try:
        if given.lock is None and take_lock(run) is None:
            raise LaunchError(f"{run.root} already has a supervisor.")
        options = load(run.launch_file, LaunchOptions)
        replace_newer_documents()
        state = Supervisor(run, options, LocalStarter(run, options)).run()
    except (TfckptError, OSError) as error:
        sys.stderr.write(f"{describe_error(error)}\n")
        return ExitCode.PROBLEM
    return ExitCode.PROBLEM if state is SupervisorState.FAILED else ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
