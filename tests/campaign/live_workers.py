"""Commands and faults on a live run of real worker processes, in an order by chance.

A case is a number. It makes the strategy, the options of saving, the commands and the faults; the
moments at which they come are those of the machine. At the end the run is stopped, started once
more as a person would, and judged.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import psutil

from clock_steps import environment_of_clock, set_clock
from faulty_file_system import FaultyMount, faulty_mounts
from tensorflow_processes import (
    TENSORFLOW,
    TENSORFLOW_KERAS_2,
    CommandProcess,
    python_with_tensorflow,
    run_with_tensorflow,
)
from waiting import MOST_SECONDS, wait_until

from .areas import Drawn, Outcome
from .live_ledger import DONE, LiveLedger
from .strangers_files import drop

HERE = Path(__file__).parent
MARK = "CAMPAIGN_CASE"
START_SECONDS = 120
MISSING = 1 << 22
"""No process has this number."""
ACTIONS = 12
Answer = tuple[int, Mapping[str, Any]]
"""The exit status of a command, and the JSON that it printed."""


class Form(NamedTuple):
    """How a run trains.

    Attributes:
        strategy: The name of its strategy.
        words: What `launch` is told of its processes.
        replicas: How many replicas train.
        imports: What its processes have imported; nothing where they run on other hosts.
    """

    strategy: str
    words: tuple[str, ...] = ()
    replicas: int = 1
    imports: str = TENSORFLOW


FORMS = (
    Form("one-device"),
    Form("one-device", imports=TENSORFLOW_KERAS_2),
    Form("multi-worker", ("--workers", "2"), 2),
    Form("parameter-server", ("--parameter-servers", "1")),
)
if importlib.util.find_spec("tf_keras") is None:
    FORMS = tuple(form for form in FORMS if form.imports == TENSORFLOW)
SAVING = ((), ("--background",), ("--spread",), ("--background", "--largest-shard", "20000"))

LIVE = (
    "save", "save", "set", "pause", "resume", "restore", "restore", "prune", "prune-rules", "undo",
    "pin", "stop", "together", "together", "thaw", "kill-chief", "kill-worker", "kill-supervisor",
    "kill-any", "freeze-worker", "freeze-supervisor", "interrupt", "interrupt", "interrupt", "drop",
    "clock",
)  # fmt: skip
INTERRUPTED = ("save", "save", "restore", "restore", "prune", "undo", "set", "stop")
CHANGED = ("control/inbox", "control/active", "control/done", "saving", "records", "trash", ".")
"""Where a change of a name tells how far a command is."""
STOPPED = (
    "launch", "launch", "damage", "drop", "move", "prune", "undo", "pin", "next-start", "clock",
)  # fmt: skip
CLOCK_STEPS = (-7200.0, -90.0, -3.0, 0.0, 3.0, 90.0, 7200.0)
"""By how many seconds the clock of all processes is off that of the disk."""
DISK_ERRORS = {"disk-full": "ENOSPC", "disk-quota": "EDQUOT", "disk-error": "EIO"}
ON_A_DISK = (*DISK_ERRORS, "hang")
AWAY_SECONDS = (1, 8, 25)
"""For how long a disk, a host, its network or the controller of Slurm does not answer."""
WRITES = ("write", "create", "truncate", "fsync", "mkdir", "rename")
FAULTS = frozenset({*LIVE[LIVE.index("kill-chief") :], *ON_A_DISK, "damage", "move"})
HAS_FUSE = os.path.exists("/dev/fuse") and importlib.util.find_spec("mfusepy") is not None
ON_A_SERVER = 0.3
"""The share of cases on a file system that can be made to fail."""
TRAINER_S, USER_S = ("save", "restore"), ("prune", "prune-rules", "undo", "pin")
"""Commands that a trainer carries out, and such as change checkpoints beside it."""


class LiveWorkers(Drawn):
    """Schedules of commands and faults on real worker processes.

    Attributes:
        imports: What the processes have imported that are forked.
    """

    name = "live"
    imports = tuple({form.imports for form in FORMS})

    def __init__(self, place: Path) -> None:
        """Starts the processes that trainers and commands are forked from."""
        self._clock = place / "clock"
        set_clock(self._clock, 0)
        # Of all processes, also of a supervisor, which is not forked.
        os.environ.update(environment_of_clock(self._clock))
        for imports in self.imports:
            python_with_tensorflow(imports)
        CommandProcess("tfckpt_tui.cli.main", "--version").communicate(MOST_SECONDS)

    def run(self, case: str, place: Path) -> Outcome:
        """Runs a schedule, and judges what it leaves."""
        with contextlib.ExitStack() as mounted:
            disk = None
            if HAS_FUSE and Random(f"disk {case}").random() < ON_A_SERVER:
                (disk,) = mounted.enter_context(faulty_mounts(place, "disk"))
            set_clock(self._clock, 0)
            episode = self._episode(case, place, disk)
            try:
                found = episode.run()
            except AssertionError as error:
                found = [*episode.ledger.found, str(error)]
            finally:
                episode.kill_all()
        story = f"{episode.form.strategy} {' '.join(episode.options)}: {', '.join(episode.done)}"
        return Outcome(episode.faults, (story, *found) if found else ())

    def _episode(self, case: str, place: Path, disk: FaultyMount | None) -> Episode:
        return Episode(case, place, disk, self._clock)


class Episode:
    """One run with what happens to it.

    Attributes:
        form: How it trains.
        options: Of its script.
        done: What happened, in order.
        faults: How many faults there were.
        ledger: What must be true of it.
        actions: How many actions are drawn.
        live: Those on a run that lives.
        stopped: Those on another one.
    """

    actions = ACTIONS
    live: Sequence[str] = LIVE
    stopped: Sequence[str] = STOPPED

    def __init__(self, case: str, place: Path, disk: FaultyMount | None, clock: Path) -> None:
        """Draws the run."""
        self._chance = Random(case)
        self._case, self._disk, self._clock_file = case, disk, clock
        if disk is not None:
            self.live = (*self.live, *ON_A_DISK)
        self._root = (disk.root if disk is not None else place) / "run"
        self._root.mkdir()
        self.form = self._chance.choice(FORMS)
        self.options = [
            "--save-every", str(self._chance.choice((7, 15, 40))),
            *self._chance.choice(SAVING),
            *self._chance.choice(((), (), ("--keep-last", "3"))),
        ]  # fmt: skip
        self.ledger, self.done, self.faults = LiveLedger(self._root), list[str](), 0
        self._starts, self._has_killed, self._held = 0, False, list[Callable[[], None]]()

    def run(self) -> list[str]:
        """Does what is drawn; returns what is violated."""
        self._launch()
        for _ in range(self.actions):
            if self._held and self._chance.random() < 0.5:
                self._thaw()
            lives = self.lives()
            if not lives:
                self._thaw()
            self._act(self._chance.choice(self.live if lives else self.stopped))
            self.ledger.note()
            if self.lives() and not self._held and self._chance.random() < 0.6:
                self._wait_for_steps()
        self._thaw()
        self._stop_fully()
        self._launch()
        return self._judged(self._stopped_at_last())

    def _stopped_at_last(self) -> str:
        self._wait_for_steps()
        code, said = self._command("stop")
        name = (said.get("command") or {}).get("result", {}).get("name")
        assert code == DONE and name, f"the last stop ended with {code}: {said}"
        self._wait_for_end()
        return str(name)

    def _judged(self, last: str) -> list[str]:
        read = run_with_tensorflow(HERE / "live_reading.py", self._root, timeout=START_SECONDS)
        assert read.returncode == 0, read.stderr
        return [*self.ledger.judge(json.loads(read.stdout), last, self.form.replicas)]

    def _act(self, action: str) -> None:
        self.faults += action in FAULTS
        method, (verb, _, who) = getattr(self, f"_{action}", None), action.partition("-")
        if method is not None or verb in {"kill", "freeze"}:
            self.done.append(action)
            method() if method is not None else self._signal(verb, who)
        elif action in DISK_ERRORS and self._disk is not None:
            self.done.append(action)
            self._disk.set_faults(errors=dict.fromkeys(WRITES, DISK_ERRORS[action]))
            self._held.append(self._disk.clear)
            self.ledger.disturb()
        elif (words := self._words_of(action)) is not None:
            self._command(*words)

    def _words_of(self, action: str) -> list[str] | None:
        names = self.ledger.newest()
        name = self._chance.choice(names) if names else None
        with_name = {
            "restore": ["restore", "--name", str(name), "--yes"],
            "prune": ["prune", str(name), "--yes"],
            "pin": ["pin", str(name)],
            "next-start": ["restore", "--name", str(name), "--next-start", "--yes"],
        }
        others = {
            "set": ["set", f"value={self._chance.randrange(2, 99)}"],
            "prune-rules": ["prune", "--keep-last", "2", "--yes"],
        }
        if action in with_name:
            return with_name[action] if name else None
        return others.get(action, [action])

    def _command(self, *words: str) -> Answer:
        """Runs a command on the run."""
        return self._answer(self._begun(words), words)

    def _begun(self, words: Sequence[str]) -> CommandProcess:
        seconds = 3 if self._held else 60 if words == ("stop",) else 15
        limit = ["--timeout", str(seconds)] if words[0] != "pin" else []
        rest = [str(self._root), *words[1:], *limit, "--json"]
        return CommandProcess("tfckpt_tui.cli.main", words[0], *rest)

    def _answer(self, command: CommandProcess, words: Sequence[str]) -> Answer:
        output, errors = command.communicate(MOST_SECONDS)
        code = command.wait()
        assert 0 <= code < 5 and "Traceback" not in errors, f"{words}: {code} {errors}"
        said = json.loads(output) if output.startswith("{") else {}
        message = (said.get("command") or said.get("error") or {}).get("message", "")
        self.done.append(f"{' '.join(words)} -> {code} {message[:80]}".strip())
        self.ledger.acknowledge(words, code, said)
        return code, said

    def _together(self) -> None:
        """Runs a command of the trainer and one beside it at the same time."""
        drawn = [self._words_of(self._chance.choice(kind)) for kind in (TRAINER_S, USER_S)]
        begun = [(self._begun(words), words) for words in drawn if words is not None]
        for command, words in begun:
            self._answer(command, words)

    def _interrupt(self) -> None:
        """Kills a process at a change that a command makes."""
        words = self._words_of(self._chance.choice(INTERRUPTED))
        place = self._root / ".tfckpt" / self._chance.choice(CHANGED)
        who = self._chance.choice(("chief", "worker", "supervisor"))
        if words is None:
            return
        before = names_in(place)
        command = self._begun(words)
        while names_in(place) == before and command.poll() is None:
            pass
        self._signal("kill", who)
        self.done[-1] = f"kill {who} at {place.name}"
        self._answer(command, words)
        self.ledger.disturb()

    def _launch(self) -> None:
        self._starts += 1
        environment = {
            MARK: self._case,
            "TF_USE_LEGACY_KERAS": str(int(self.form.imports == TENSORFLOW_KERAS_2)),
        }
        script = [HERE / "live_training.py", "--strategy", self.form.strategy, *self.options]
        script += ["--start", self._starts]
        told = ["--no-standby", "--max-restarts", "20", "--grace-seconds", "5", "--detach"]
        imports = self.form.imports
        python = python_with_tensorflow(imports) if imports else [sys.executable]
        with patch.dict(os.environ, environment):
            command = CommandProcess(
                "tfckpt_tui.cli.main", "launch", self._root, *self.form.words, *told, "--",
                *python, *script,
            )  # fmt: skip
            _, errors = command.communicate(MOST_SECONDS)
        self.done.append(f"launch -> {command.wait()}")
        assert command.wait() == DONE, errors
        self.ledger.disturb()
        self._has_killed = False
        self._wait_for_steps()

    def _wait_for_steps(self) -> None:
        """Waits until the chief has trained further, is paused, or nobody would start it again."""
        first = self._heard("worker-0")

        def trains() -> bool:
            chief = self._heard("worker-0")
            # Without a supervisor, a chief waits for a lost worker for ever.
            if self._has_killed and not self._process_of("supervisor"):
                return True
            if not psutil.pid_exists(chief.get("pid", MISSING)):
                return not self.processes()
            is_paused = chief["activity"] == "paused"
            others = chief["pid"] != first.get("pid") or chief["step"] >= first["step"] + 3
            return is_paused or (chief["activity"] == "training" and others)

        wait_until(trains, START_SECONDS, "training goes on")

    def _heard(self, who: str) -> dict[str, Any]:
        """The newest heartbeat of a worker or of the supervisor; a start removes earlier ones."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            path = self._root / ".tfckpt" / "status" / f"{who}.json"
            return dict(json.loads(path.read_text()))
        return {}

    def _signal(self, verb: str, who: str) -> None:
        """Kills or freezes a process of the run."""
        for process in self._process_of(who):
            with contextlib.suppress(psutil.NoSuchProcess):
                if verb == "kill":
                    process.kill()
                    self._has_killed = True
                else:
                    process.suspend()
                    self._held.append(process.resume)
        self.ledger.disturb()

    def _process_of(self, who: str) -> list[psutil.Process]:
        """A living process: that of a heartbeat, or any, which need not have one yet."""
        if who == "any":
            return self._chance.sample(left := self.processes(), min(1, len(left)))
        status = self._root / ".tfckpt" / "status"
        workers = sorted(path.stem for path in status.glob("worker-*.json"))
        named = {"chief": "worker-0", "worker": self._chance.choice(workers or ["worker-0"])}
        pid = self._heard(named.get(who, who)).get("pid")
        return [process for process in self.processes() if process.pid == pid]

    def _thaw(self) -> None:
        while self._held:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._held.pop()()

    def _hang(self) -> None:
        """Has no call to the disk answered for a while."""
        if self._disk is not None:
            self._disk.set_faults(hang=True)
            self.done[-1] = f"hang for {self._stay_away()} s"
            self._disk.clear()
            self.ledger.disturb()

    def _stay_away(self) -> int:
        """Waits for as long as something does not answer; returns the seconds."""
        seconds = self._chance.choice(AWAY_SECONDS)
        time.sleep(seconds)
        return seconds

    def _damage(self) -> None:
        """Damages a file of the newest checkpoint, unless it is the only one."""
        name, *others = self.ledger.newest() or [""]
        if not others:
            return
        files = [*sorted(self._root.glob(f"{name}.data-*")), self._root / f"{name}.index"]
        file, how = self._chance.choice(files), self._chance.choice(("flip", "cut", "remove"))
        content = file.read_bytes()
        at = self._chance.randrange(len(content))
        self.ledger.damage(name)
        file.unlink()
        if how == "flip":
            file.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        elif how == "cut":
            file.write_bytes(content[:at])
        self.done[-1] = f"damage {file.name} {how}"

    def _drop(self) -> None:
        """Makes files of somebody else."""
        self._thaw()
        names = {drop(self._root, self._chance) for _ in range(5)}
        self.ledger.leave_out(names - {""})

    def _clock(self) -> None:
        """Sets the clock of all processes."""
        off = self._chance.choice(CLOCK_STEPS)
        set_clock(self._clock_file, off)
        self.done[-1] = f"clock {off:+.0f} s"

    def _move(self) -> None:
        """Moves the run directory."""
        self._root = self._root.rename(self._root.with_name(f"moved-{len(self.done)}"))
        self.ledger = self.ledger.at(self._root)

    def _stop_fully(self) -> None:
        """Stops the run as a person would whom a fault has left with anything."""
        for words in (("stop",), ("stop", "--force")):
            if self.lives():
                code, _ = self._command(*words)
                if code == DONE:
                    self._wait_for_end()
        self._wait_for_end()

    def lives(self) -> bool:
        """Whether anything of it runs, or will."""
        return bool(self.processes())

    def _wait_for_end(self) -> None:
        wait_until(lambda: not self.lives(), 30, f"{self.processes()} end")

    def processes(self) -> list[psutil.Process]:
        """Returns the processes of this run that live.

        A forked trainer has the environment of the process that it was forked from.
        """
        return [
            process
            for process in psutil.process_iter()
            if is_marked(process, MARK, self._case) or prints_into(process, self._root)
        ]

    def kill_all(self) -> None:
        """Kills what is left."""
        self._thaw()
        while left := self.processes():
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def names_in(directory: Path) -> list[str]:
    """Returns the names in a directory, none if it is not there."""
    return os.listdir(directory) if directory.is_dir() else []


def prints_into(process: psutil.Process, root: Path) -> bool:
    """Whether the output of a process goes into a file of this directory."""
    try:
        return os.readlink(f"/proc/{process.pid}/fd/1").startswith(f"{root}/")
    except OSError:
        return False


def is_marked(process: psutil.Process, name: str, value: str) -> bool:
    """Whether a process has a variable, and lives: of others there is no environment."""
    try:
        return process.environ().get(name) == value
    except (psutil.Error, OSError):
        return False
