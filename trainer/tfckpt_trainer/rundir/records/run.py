"""Records about a run: its description, its last restore and its supervisor."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from tfckpt_trainer.rundir.records.exactness import CheckSummary, Exactness, with_check
from tfckpt_trainer.rundir.records.process import ProcessIdentity
from tfckpt_trainer.rundir.storage.documents import Document, SealedDocument


class GuardSource(StrEnum):
    """Who gave a guard."""

    SCRIPT = "script"
    CONFIG = "config"


class GuardInForce(msgspec.Struct, frozen=True, kw_only=True):
    """A guard that the trainer evaluates.

    Attributes:
        rule: Its text.
    """

    rule: str
    source: GuardSource


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs from the commit.

    Attributes:
        path: Its path in the repository.
        added: Added lines; None for a file that is not text.
        removed: Removed lines; None for a file that is not text.
    """

    path: str
    added: int | None
    removed: int | None


class CodeVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The Git repository of a script.

    Attributes:
        commit: Hash of the commit that is checked out.
        branch: Name of the Git branch; empty if none is checked out.
        changed_files: Number of tracked files that differ from the commit; None if Git did not
            answer in time. Untracked files are not looked at.
        added: Added lines of all of them.
        removed: Removed lines of all of them.
        changes: The first 100 of them.
    """

    commit: str
    branch: str = ""
    changed_files: int | None = None
    added: int = 0
    removed: int = 0
    changes: list[ChangedFile] = []


EVENTS = ".tfckpt/tensorboard"
"""The directory of event files, unless the script names another."""


SAVES_AT_END = "only at its end"
"""When a run saves that was told to save at no other time."""


class RunInfo(Document, frozen=True, kw_only=True):
    """`run.json`: description of the run.

    Attributes:
        id: ID of the run. It does not change when the run is restarted.
        created_at: Time of creation, in seconds since the epoch like all times.
        strategy: Class name of the `tf.distribute` strategy; empty until the chief has started.
        worker_count: Number of processes that write heartbeats. With the parameter server
            strategy these are the workers, the parameter servers and the chief.
        replica_count: Replicas in sync over all workers; 0 until the chief has started.
        cluster: Addresses by job, as in `TF_CONFIG`.
        launched: Whether `tfckpt-tui` launched it. Only `launch.json` and `command.json` have the
            command, because its arguments may be secret.
        total_steps: The step at which training ends; None if it has no end.
        epoch_steps: Steps of an epoch, if `fit` trains or the script declares them.
        tensorboard: Directory of event files, relative to the run directory unless absolute.
        host: Host of the chief.
        versions: Versions of Python, TensorFlow and Keras.
        code: The Git repository of the script at the newest launch, or at the newest start of a
            script that was not launched; None if it is in none.
        retention: How the trainer prunes, if it does; see `RetentionSettings.from_json`. Values are
            checked when it is used: a rule of a newer version must not make the file unreadable.
        saves: When the trainer saves, in words; empty until it has started.
        exactness: Whether the trainer expects that resuming is exact; None until it has started.
        gpus: Which GPUs the strategy does not use, as a sentence; empty if it uses all.
        check: The last check of the script, if there was one. A quick check of the present start is
            stored; readers fill in another.
        guards: The guards that the trainer evaluates.
    """

    id: str
    created_at: float
    strategy: str = ""
    worker_count: int = 1
    replica_count: int = 0
    cluster: dict[str, list[str]] = {}
    launched: bool = False
    total_steps: int | None = None
    epoch_steps: int | None = None
    tensorboard: str = EVENTS
    host: str = ""
    versions: dict[str, str] = {}
    code: CodeVersion | None = None
    retention: dict[str, Any] | None = None
    saves: str = ""
    exactness: Exactness | None = None
    gpus: str = ""
    check: CheckSummary | None = None
    guards: list[GuardInForce] = []

    @property
    def known_exactness(self) -> Exactness | None:
        """What the trainer found and a check compared; None if neither tells."""
        return with_check(self.exactness, self.check)


class ScriptCommand(Document, frozen=True, kw_only=True):
    """`command.json`: how a script was started that no launcher started; it may hold secrets.

    Attributes:
        command: Its command, with the interpreter.
        working_directory: Its working directory.
    """

    is_private: ClassVar[bool] = True

    command: tuple[str, ...]
    working_directory: str


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """Why training ended before it had done `total_steps`.

    Attributes:
        reason: Who or what ended it, as a clause.
        total_steps: The `total_steps` of that training; None if it had none.
        by_dataset: Whether its dataset ended. A restored position in the dataset tells that too.
    """

    reason: str
    total_steps: int | None = None
    by_dataset: bool = False

    def holds_for(self, total_steps: int | None) -> bool:
        """Whether training with so many steps is finished too, because it has no more of them."""
        return total_steps is None or total_steps <= (self.total_steps or 0)


class Head(SealedDocument, frozen=True, kw_only=True):
    """`head.json`: the last restore, or the end of a finished run.

    Attributes:
        checkpoint: Name of the checkpoint that was restored, or saved at the end.
        step: Its step.
        branch: The branch of later saves.
        sequence: Position in the order of all saves and restores. Later saves have higher ones.
        finish: Why training ended at this checkpoint; None if it goes on.
        values: Hyperparameters that the restore changed, by name. A start from here changes them
            again.
        highest_begun: The highest branch that training began, if the checkpoint was chosen for the
            next start; None once that start has taken place.
    """

    has_copy: ClassVar[bool] = True

    checkpoint: str
    step: int
    branch: int
    sequence: int
    finish: Finish | None = None
    values: dict[str, float] = {}
    highest_begun: int | None = None

    @property
    def highest_branch(self) -> int:
        """The highest branch number that this record says is in use."""
        return self.branch if self.highest_begun is None else self.highest_begun


class SupervisorState(StrEnum):
    """State of the supervisor."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


class WorkerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process of a supervisor.

    Attributes:
        process_after_boot: How many seconds after the machine it was started; no clock changes
            that. None in a file of an earlier release.
        exit_code: Exit status, negative for a signal; None while it runs.
        host: Its host; empty if it is the supervisor's.
    """

    index: int
    pid: int
    process_started_at: float
    exit_code: int | None = None
    host: str = ""
    process_after_boot: float | None = None

    @property
    def process(self) -> ProcessIdentity:
        """The process."""
        return ProcessIdentity(self.pid, self.process_started_at, self.process_after_boot)


class SupervisorStatus(Document, frozen=True, kw_only=True):
    """`status/supervisor.json`: heartbeat of the supervisor.

    Attributes:
        interval_seconds: Interval between heartbeats.
        lost_after_seconds: Age at which it is too old; None for five intervals.
        attempt: Number of starts of the workers so far, not counting the first.
        restarts: Number of used restarts, of `max_restarts`. A new checkpoint resets it.
        reason: Why the run is restarting, stopped or failed.
        next_start_at: While restarting, the time at which the workers start again.
        namespace: Boot and PID namespace of `pid`; empty if unknown.
        directory: Device and inode of the run directory, which a copy of it does not have; None on
            a network disk.
        longest_start_seconds: The longest time from the start of all workers until the run existed
            in each of them, in this and earlier launches; None before the first.
        gpus: Which GPUs are idle, shared or not counted, as a sentence; empty if none are.
        process_after_boot: How many seconds after the machine it was started; no clock changes
            that. None in a file of an earlier release.
    """

    pid: int
    host: str
    process_started_at: float
    updated_at: float
    interval_seconds: float
    state: SupervisorState
    attempt: int = 0
    restarts: int = 0
    max_restarts: int = 0
    reason: str = ""
    next_start_at: float | None = None
    workers: list[WorkerProcess] = []
    namespace: str = ""
    directory: tuple[int, int] | None = None
    longest_start_seconds: float | None = None
    gpus: str = ""
    lost_after_seconds: float | None = None
    process_after_boot: float | None = None

    @property
    def process(self) -> ProcessIdentity:
        """The process that wrote it."""
        return ProcessIdentity(self.pid, self.process_started_at, self.process_after_boot)

    def namespace_of(self, worker: WorkerProcess) -> str:
        """Returns boot and PID namespace of a worker; empty if unknown."""
        return self.namespace if worker.host in {"", self.host} else ""

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, and will write no further heartbeat."""
        return self.state in {
            SupervisorState.STOPPED,
            SupervisorState.FINISHED,
            SupervisorState.FAILED,
        }
