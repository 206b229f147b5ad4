"""Runs supervised by a real supervisor, with workers that need no TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tensorflow_processes import CommandProcess
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import store
from waiting import LEAST_SECONDS, wait_until

WORKER = Path(__file__).parent / "scripts" / "worker.py"


class Run:
    """One run directory with what a test asks of it."""

    def __init__(self, root: Path) -> None:
        self.directory = RunDirectory(root)
        self.root = root
        self._supervisors: list[CommandProcess] = []

    def options(self, *actions: str, **changes) -> LaunchOptions:
        """Options for workers that do `actions`."""
        return msgspec.structs.replace(
            LaunchOptions(
                run_directory=str(self.root),
                command=(sys.executable, str(WORKER), *actions),
                working_directory=str(self.root.parent),
                workers=2,
                pause_seconds=0.05,
                grace_seconds=10,
                standby=False,
            ),
            **changes,
        )

    def supervise(self, options: LaunchOptions) -> CommandProcess:
        """Starts a supervisor in the foreground, as somebody without our launcher would."""
        self.directory.create()
        store(self.directory.launch_file, options)
        supervisor = CommandProcess("tfckpt_trainer.launch.local.local_supervisor", self.root)
        self._supervisors.append(supervisor)
        return supervisor

    def to_the_end(self, options: LaunchOptions, timeout: float = 20) -> SupervisorStatus:
        """Supervises until the end, and returns how it ended."""
        self.supervise(options).wait(max(timeout, LEAST_SECONDS))
        return self.status()

    def status(self) -> SupervisorStatus:
        status = read_supervisor(self.directory)
        assert status is not None
        return status

    def wait_for(self, *states: SupervisorState, timeout: float = 20) -> SupervisorStatus:
        def seen() -> SupervisorStatus | None:
            status = read_supervisor(self.directory)
            return status if status is not None and status.state in states else None

        return wait_until(seen, timeout, f"supervisor {states}")

    def wait_for_file(self, name: str, timeout: float = 15) -> str:
        """The text that a worker wrote."""
        path = self.root / name
        return wait_until(lambda: path.exists() and path.read_text(), timeout, name)

    def wait_until_ready(self) -> None:
        for index in range(2):
            self.wait_for_file(f"ready-{index}")

    def event_log(self, *kinds: EventKind) -> list[EventEntry]:
        return [e for e in read_entries(self.directory) if not kinds or e.kind in kinds]

    def clean_up(self) -> None:
        if (self.root / ".tfckpt").is_dir():
            stop_supervisor(self.directory, 0.5)
        for supervisor in self._supervisors:
            print(*supervisor.communicate(60))
