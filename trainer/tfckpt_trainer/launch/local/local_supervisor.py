"""Supervises a run on this machine, without a terminal: `python -m …local_supervisor RUN`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.alerts.sender import sending_alerts
from tfckpt_trainer.cluster.tasks import tf_config
from tfckpt_trainer.errors import ExitCode, LaunchError, TfckptError, describe_error
from tfckpt_trainer.launch.local.standby import STANDBY, Standby, as_program
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.cluster import addresses, free_ports, plan_gpus
from tfckpt_trainer.launch.processes.logs import open_run_log
from tfckpt_trainer.launch.processes.workers import RunningWorker, end_workers, start_worker
from tfckpt_trainer.launch.supervision.restart_policy import Next
from tfckpt_trainer.launch.supervision.starters import CannotStartError, Placement
from tfckpt_trainer.launch.supervision.supervisor import Supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.run_info import staying_in
from tfckpt_trainer.rundir.storage.documents import decode, load, replace_newer_documents
from tfckpt_trainer.rundir.storage.files import delete_file
from tfckpt_trainer.rundir.storage.locks import take_lock


class LocalStarter:
    """Starts each worker as a process, from a standby process if there is one."""

    def __init__(self, run: RunDirectory, options: LaunchOptions) -> None:
        self._run = run
        self._options = options
        self._workers: list[RunningWorker] = []
        program = as_program(options.command) if options.standby else None
        self._program = program if options.max_restarts else None
        self._standby: Standby | None = None
        self._environments: list[dict[str, str]] = []
        self._attempt = 0

    @property
    def workers(self) -> Sequence[RunningWorker]:
        """The workers of the last start."""
        return self._workers

    @property
    def logs(self) -> Sequence[Path]:
        """The logs of the workers and of the standby process."""
        return [*map(self._run.worker_log, range(len(self._workers))), self._run.standby_log]

    def place(self) -> Placement:
        """Chooses the ports, those of the options or free ones, and divides the GPUs."""
        members = self._options.tasks
        ports = self._options.ports or free_ports(len(members))
        return Placement(members, tuple(addresses(ports)), plan_gpus(self._options))

    def start(self, placement: Placement, environment: Mapping[str, str], attempt: int) -> None:
        """Starts all workers.

        Raises:
            CannotStartError: The standby process failed.
            OSError: The command cannot be run, or the disk is full.
        """
        self._workers, self._attempt = [], attempt
        cluster = placement.cluster
        self._environments = [
            {
                **environment,
                "TF_CONFIG": tf_config(cluster, task),
                "TFCKPT_WORKER_INDEX": str(index),
                **placement.gpus.variables[index],
            }
            for index, task in enumerate(placement.tasks)
        ]
        for index in range(len(placement.tasks)):
            try:
                self._workers.append(self._start(index))
            except LaunchError:
                # The next start does without it.
                raise CannotStartError(
                    "The standby process failed; the workers are started without it.", Next.RESTART
                ) from None

    def replace(self, index: int) -> bool:
        """Starts one worker again; returns whether that was possible."""
        # An old heartbeat must not be taken for that of a starting worker.
        with suppress(OSError):
            delete_file(self._run.worker_status(index))
        try:
            self._workers[index] = self._start(index)
        except (OSError, LaunchError):
            return False
        return True

    def _start(self, index: int) -> RunningWorker:
        standby, command = self._standby, self._options.command
        directory, environment = Path(self._options.working_directory), self._environments[index]
        log = self._run.worker_log(index)
        with open_run_log(self._run, log, self._attempt, command) as output:
            if standby is not None and standby.is_ready:
                return standby.start_worker(index, environment, directory, output)
            return start_worker(index, command, environment, directory, output)

    def prepare_restart(self, environment: Mapping[str, str]) -> None:
        """Starts a standby process, unless there is one."""
        if self._program is None or self._standby is not None:
            return
        try:
            with open_run_log(self._run, self._run.standby_log, 0, STANDBY) as output:
                self._standby = Standby(self._program, environment, output)
        except OSError:
            # Without it a restart takes seconds longer; its log has the reason.
            self._program = None

    def end(self, grace_seconds: float, while_waiting: Callable[[], None]) -> list[int]:
        """Ends all workers and the processes that they started; returns the killed ones."""
        return end_workers(self._workers, grace_seconds, while_waiting)

    def close(self) -> None:
        """Ends the standby process."""
        if self._standby is not None:
            self._standby.end()


def main(arguments: Sequence[str] | None = None) -> int:
    """Supervises a run: by the options on its standard input if detached, else by `launch.json`."""
    parser = argparse.ArgumentParser(prog="python -m tfckpt_trainer.launch.local.local_supervisor")
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--lock", type=int, help="descriptor that holds the lock; runs detached")
    given = parser.parse_args(arguments)
    run = RunDirectory(Path(os.path.realpath(given.run)))
    if given.lock is not None and os.fork():
        # The launch waits for this process only: its child runs on by itself.
        os._exit(0)
    try:
        lock = take_lock(run.supervisor_lock) if given.lock is None else given.lock
        if lock is None:
            raise LaunchError(f"{run.root} already has a supervisor.")
        options = load(run.launch_file, LaunchOptions) if given.lock is None else _given_options()
        replace_newer_documents()
        with staying_in(run), sending_alerts(run, lock) as on_event:
            state = Supervisor(run, options, LocalStarter(run, options), on_event).run()
    except (TfckptError, OSError) as error:
        sys.stderr.write(f"{describe_error(error)}\n")
        return ExitCode.PROBLEM
    return ExitCode.PROBLEM if state is SupervisorState.FAILED else ExitCode.DONE


def _given_options() -> LaunchOptions:
    """Reads the options that the launch hands over; nobody can replace them, as they can a file."""
    return decode(sys.stdin.buffer.read(), LaunchOptions, "The options of the launch")


if __name__ == "__main__":
    sys.exit(main())
