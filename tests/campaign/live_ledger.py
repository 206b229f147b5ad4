"""What must be true of a live run after faults, judged by its answers and the numbers it saved.

Nothing of the product is imported here. A checkpoint of `live_training.py` has a number for each
step: which attempt took it, on which branch, with which value and which element of the input.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import sub
from pathlib import Path
from typing import Any

from .ledger import Ledger

_NAME = re.compile(r"ckpt-(?:b(?P<branch>\d+)-)?(?P<step>\d+)")
_SHARD = re.compile(r".*\.data-(\d{5})-of-(\d{5})")
DONE, PROBLEM = 0, 1
FAILED = " failed: "
"""What a command says that has put back what it did."""
Numbers = Mapping[str, Any]


class LiveLedger(Ledger):
    """The files and the acknowledged answers of a run.

    Attributes:
        line: The checkpoint that all later training goes on from; None if nobody knows.
        damaged: The checkpoints that a fault has damaged.
        found: What an answer contradicted.
    """

    def __init__(self, root: Path) -> None:
        """Begins with an empty run."""
        super().__init__(root)
        self.line: str | None = None
        self.damaged: set[str] = set()
        self.found: list[str] = []
        self._pinned: set[str] = set()
        self._paused_at: int | None = None
        self._set: tuple[int, float] | None = None
        self._set_at: set[int] = set()
        self._restored: tuple[str, int | None] | None = None

    def note(self) -> None:
        """Adds the checkpoints that the state file lists, and that are whole."""
        before, here, after = self._listed()[0], self._here(), self._listed()[0]
        for name in {*before} & {*after} & {*here} - self.damaged - {*self._checkpoints}:
            if is_whole(name, here[name]):
                self._checkpoints[name] = here[name]

    def newest(self) -> list[str]:
        """Returns the known checkpoints of the directory, the one that was saved last first."""
        names = {*self._here()} & {*self._checkpoints} - self.damaged
        saved: dict[str, int] = {}
        for name in names:
            # A trainer may prune it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                saved[name] = (self._root / f"{name}.index").stat().st_mtime_ns
        return sorted(saved, key=saved.__getitem__, reverse=True)

    def damage(self, name: str) -> None:
        """Takes a checkpoint for damaged."""
        self.damaged.add(name)
        self._checkpoints = {one: at for one, at in self._checkpoints.items() if one != name}
        self._pinned.discard(name)
        # Nor does a start go on from one that was pruned.
        is_pruned = self.line is not None and self.line not in self._here()
        if name == self.line or is_pruned:
            self.line = next(iter(self.newest()), None)
            self._set = self._restored = None

    def disturb(self) -> None:
        """Takes it that processes start again, from a checkpoint."""
        self._paused_at = None

    def acknowledge(self, words: Sequence[str], code: int, said: Mapping[str, Any]) -> None:
        """Takes the answer to a command.

        Args:
            words: The command, without the run directory.
            code: Its exit status.
            said: The JSON that it printed.
        """
        kind = words[0]
        if code == PROBLEM and FAILED not in said.get("error", {}).get("message", ""):
            # It may be done or not, or still be done.
            self._set = self._restored = None
            self.line = self.line if kind in {"set", "save"} else None
        if code != DONE:
            self._paused_at = None if kind in {"resume", "restore"} else self._paused_at
            return
        result = (said.get("command") or {}).get("result") or {}
        if kind in {"save", "stop"}:
            self._acknowledge_save(kind, result)
        elif kind == "restore":
            # In place or at the next start: `restore --name NAME`.
            self.line, self._set, self._paused_at = words[2], None, None
            self._restored = words[2], result.get("branch")
        elif kind == "set":
            self._set = result["step"], result["hyperparameters"][0]["after"]
            self._set_at.add(result["step"])
        elif kind in {"pause", "resume"}:
            self._paused_at = result["step"] if kind == "pause" else None
        elif kind == "pin":
            self._pinned.add(words[1])
        elif kind == "prune" and self.line in self.in_trash():
            self.line = None

    def _acknowledge_save(self, kind: str, result: Mapping[str, Any]) -> None:
        name, step = result.get("name"), result.get("step")
        if step is not None and self._paused_at not in (None, step):
            self.found.append(f"paused at {self._paused_at}, and {kind} at {step}")
        if kind == "stop":
            self._paused_at = None
        if not name or name in self.damaged:
            return
        self.line = name
        self.note()
        if name not in self._checkpoints:
            self.found.append(f"{kind} answered {name}, which is not there")

    def judge(self, read: Mapping[str, Numbers], last: str, replicas: int) -> Iterator[str]:
        """Yields what is violated at the end.

        Args:
            read: What plain TensorFlow reads, by the path of each checkpoint.
            last: The checkpoint with which the last start ended.
            replicas: How many replicas trained.
        """
        yield from self.found
        yield from self.violations()
        here = self._here()
        yield from (f"{name} is pinned and gone" for name in self._pinned - {*here})
        sound = {
            Path(path).name: numbers
            for path, numbers in read.items()
            if Path(path).name not in self.damaged
        }
        for name, numbers in sound.items():
            yield from (f"{name}: {one}" for one in self._judged(name, numbers, sound, replicas))
        if last not in sound or "error" in sound[last]:
            yield f"{last} is the last one, and not there"
        elif not any("error" in numbers for numbers in sound.values()):
            yield from self._judge_line(sound, last, replicas)

    def _judged(
        self, name: str, numbers: Numbers, sound: Mapping[str, Numbers], replicas: int
    ) -> Iterator[str]:
        if "error" in numbers:
            yield str(numbers["error"])
            return
        branch, step = parse(name)
        attempts = numbers["attempts"]
        if len(attempts) != step or 0 in attempts or numbers["weight"] != step:
            yield f"it has {len(attempts)} steps, and a weight of {numbers['weight']}"
            return
        of_workers = range(replicas)
        elements = [sum(at + 10_000 * worker for worker in of_workers) for at in range(step)]
        if numbers["elements"] != elements:
            yield f"other batches: {runs_of(map(sub, numbers['elements'], elements))}"
        newest = [numbers[of][-1] for of in ("attempts", "branches", "values")] if step else []
        if step and newest != [replicas * one for one in numbers["now"]]:
            yield f"a mixture: {numbers['now']} after {newest}"
        line = line_of(numbers)
        if line != sorted(line) or (line and line[-1][1] > branch * replicas):
            yield f"another line: {runs_of(line)}"
        for at in range(1, step):
            if line[at] != line[at - 1] and not self._was_saved(line[:at], sound):
                yield f"it goes on after step {at}, which nobody saved: {runs_of(line)}"

    def _was_saved(self, line: list[tuple[float, float]], sound: Mapping[str, Numbers]) -> bool:
        return any(parse(name)[1] == len(line) for name in self.damaged) or any(
            "error" not in numbers and line_of(numbers) == line for numbers in sound.values()
        )

    def _judge_line(self, sound: Mapping[str, Numbers], last: str, replicas: int) -> Iterator[str]:
        line = line_of(sound[last])
        if self.line in sound:
            before = line_of(sound[self.line])
            if line[: len(before)] != before:
                yield f"{last} does not go on from {self.line}: {runs_of(line)}"
        if self._restored is not None and self._restored[0] in sound:
            yield from self._judge_restore(*self._restored, sound, last, replicas)
        if self._set is not None:
            step, value = self._set
            values = sound[last]["values"][step:]
            if values != [replicas * value] * len(values):
                yield f"{value} was set after step {step}, but then was {runs_of(values)}"

    def _judge_restore(
        self,
        name: str,
        branch: int | None,
        sound: Mapping[str, Numbers],
        last: str,
        replicas: int,
    ) -> Iterator[str]:
        _, step = parse(name)
        line, values = line_of(sound[last]), sound[last]["values"][step:]
        if branch is not None and line[step:] and line[step][1] < branch * replicas:
            yield f"{name} was restored on branch {branch}, but then came {runs_of(line[step:])}"
        before = sound[name]["values"][-1:]
        # A value that was set just before a save has no step of its own.
        if self._set is None and step not in self._set_at and {*before} != {*values} != set():
            yield f"{name} was restored with {before}, but then came {runs_of(values)}"


def parse(name: str) -> tuple[int, int]:
    """Returns the branch and the step in the name of a checkpoint."""
    match = _NAME.fullmatch(name)
    assert match is not None, name
    return int(match["branch"] or 0), int(match["step"])


def is_whole(name: str, files: Mapping[str, str]) -> bool:
    """Whether the files of a checkpoint are all there."""
    shards = [match for match in map(_SHARD.fullmatch, files) if match is not None]
    return f"{name}.index" in files and len(shards) == int(shards[0][2] if shards else 0) > 0


def line_of(numbers: Numbers) -> list[tuple[float, float]]:
    """Returns the attempt and the branch of each step."""
    return [*zip(numbers["attempts"], numbers["branches"], strict=True)]


def runs_of(values: Sequence[Any] | Iterator[Any]) -> list[tuple[Any, int]]:
    """Returns equal values that follow each other once, each with how many there are."""
    return [(value, len([*same])) for value, same in groupby(values)]
