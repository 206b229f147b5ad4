"""Finds the processes of a run that still live: its supervisor, and workers without one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tfckpt_trainer.rundir.heartbeats.health import is_live, living
from tfckpt_trainer.rundir.heartbeats.process_ids import are_pids_valid_here
from tfckpt_trainer.rundir.heartbeats.process_table import find_process, process_lives
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.process import ProcessIdentity
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import Document


class OrphanProcess(msgspec.Struct, frozen=True):
    """A worker process that lives.

    Attributes:
        process: The process on its machine.
        named_in: The file that names it.
        kind: The type of that file.
        namespace: The PID namespace of `pid`; empty if unknown.
    """

    index: int
    host: str
    process: ProcessIdentity
    named_in: Path
    kind: type[Document]
    namespace: str = ""

    @property
    def pid(self) -> int:
        """Its process ID on its machine."""
        return self.process.pid

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine, so that it can be signalled."""
        return are_pids_valid_here(self.host, self.namespace)

    @property
    def lives(self) -> bool:
        """Whether it still runs; assumed for processes of other machines."""
        return not self.is_here or process_lives(self.process)

    @property
    def keeps_its_number(self) -> bool:
        """Whether no other process has got its id, so that its group may be signaled."""
        found = find_process(self.pid)
        return found is None or self.process.is_same(found.process)

    def __str__(self) -> str:
        place = "" if self.is_here else f" on {self.host}"
        return f"worker {self.index}{place} (process {self.pid})"


def living_supervisor(run: RunDirectory, now: float) -> SupervisorStatus | None:
    """Returns the heartbeat of the supervisor if it runs."""
    return living(read_supervisor(run), now)


def orphan_processes(run: RunDirectory, now: float) -> list[OrphanProcess]:
    """Returns the live workers, sorted by index.

    They come from the workers' heartbeats, and from the supervisor's last one: scripts that do
    not use this library write none of their own.
    """
    orphans: dict[tuple[str, int], OrphanProcess] = {}
    for told in read_workers(run):
        if told.activity is not Activity.EXITED and is_live(told, now):
            worker = OrphanProcess(
                index=told.index,
                host=told.host,
                process=told.process,
                named_in=run.worker_status(told.index),
                kind=WorkerStatus,
                namespace=told.namespace,
            )
            orphans[worker.host, worker.pid] = worker
    supervisor = read_supervisor(run)
    for started in supervisor.workers if supervisor is not None else ():
        assert supervisor is not None
        worker = OrphanProcess(
            index=started.index,
            host=started.host or supervisor.host,
            process=started.process,
            named_in=run.supervisor_status,
            kind=SupervisorStatus,
            # On another host, the host name decides whether it is this one.
            namespace=supervisor.namespace_of(started),
        )
        if started.exit_code is None and worker.is_here and worker.lives:
            orphans.setdefault((worker.host, worker.pid), worker)
    return sorted(orphans.values(), key=lambda worker: (worker.index, worker.pid))
