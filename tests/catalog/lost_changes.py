"""What a power loss may leave: every change of a directory that was not flushed, or not.

The calls of an action are recorded. A change of names is certain once every directory in which it
shows was flushed after it; the content of a file once the file was. At any point of the action a
power loss may take any of the changes that are not certain, the later ones or the earlier ones.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Change:
    """One call: `make` and `drop` of a name, `rename`, or the flush of a file or a directory."""

    kind: str
    path: str
    target: str = ""
    content: bytes = b""

    @property
    def directories(self) -> set[str]:
        """In which directories it shows."""
        return {os.path.dirname(path) for path in (self.path, self.target) if path}

    @property
    def is_certain_at_once(self) -> bool:
        return self.kind in {"flush", "content"}


@dataclass
class Tree:
    """Files and directories by their paths, with what `stat` says of their times."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Tree:
        tree = cls()
        for path in sorted(root.rglob("*")):
            facts = os.lstat(path)
            name = path.relative_to(root).as_posix()
            if stat.S_ISDIR(facts.st_mode):
                tree.directories[name] = facts.st_mtime_ns
            else:
                tree.files[name] = path.read_bytes(), facts.st_mtime_ns
        return tree

    @property
    def identity(self) -> tuple[frozenset[Any], frozenset[Any]]:
        """Equal for trees that are equal."""
        return frozenset(self.files.items()), frozenset(self.directories.items())

    def write(self, root: Path) -> None:
        root.mkdir(parents=True)
        for name in sorted(self.directories):
            (root / name).mkdir()
        for name, (content, modified) in self.files.items():
            (root / name).write_bytes(content)
            os.utime(root / name, ns=(modified, modified))
        for name in sorted(self.directories, reverse=True):
            os.utime(root / name, ns=(self.directories[name],) * 2)

    def with_changes(self, changes: list[Change]) -> Tree:
        tree = Tree(dict(self.files), dict(self.directories))
        for change in changes:
            tree._apply(change)
        return tree

    def _apply(self, change: Change) -> None:
        parents = {*change.directories} - {""}
        if not parents <= self.directories.keys():
            # The directory itself is lost, and with it all that was done in it.
            if change.kind == "rename" and os.path.dirname(change.path) in {
                "",
                *self.directories,
            }:
                self._remove(change.path)
            return
        if change.kind == "make":
            self.files[change.path] = b"", 0
        elif change.kind == "directory":
            self.directories[change.path] = 0
        elif change.kind == "content" and change.path in self.files:
            self.files[change.path] = change.content, 0
        elif change.kind == "drop":
            self._remove(change.path)
        elif change.kind == "rename":
            self._rename(change.path, change.target)

    def _rename(self, source: str, target: str) -> None:
        if source in self.files:
            self.files[target] = self.files.pop(source)
        elif source in self.directories:
            for things in (self.files, self.directories):
                for name in [n for n in things if n == source or n.startswith(f"{source}/")]:
                    things[target + name.removeprefix(source)] = things.pop(name)

    def _remove(self, path: str) -> None:
        self.files.pop(path, None)
        self.directories.pop(path, None)
        for things in (self.files, self.directories):
            for name in [n for n in things if n.startswith(f"{path}/")]:
                del things[name]


@contextmanager
def recorded(root: Path) -> Iterator[list[Change]]:
    """Records every change of names and every flush below `root`."""
    recorder = _Recorder(root)
    with pytest.MonkeyPatch.context() as patch:
        for call in ("rename", "replace"):
            patch.setattr(os, call, recorder.telling(getattr(os, call), "rename"))
        for call in ("unlink", "remove", "rmdir"):
            patch.setattr(os, call, recorder.telling(getattr(os, call), "drop"))
        patch.setattr(os, "mkdir", recorder.telling(os.mkdir, "directory"))
        patch.setattr(os, "open", recorder.telling_of_new(os.open))
        patch.setattr(os, "fsync", recorder.telling_of_flushes(os.fsync))
        yield recorder.changes


class _Recorder:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.changes: list[Change] = []

    def telling(self, call: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def called(path: Any, *more: Any, **options: Any) -> Any:
            begin = options.get("dir_fd", options.get("src_dir_fd"))
            name = self._name_of(path, begin)
            result = call(path, *more, **options)
            if name is not None:
                end = options.get("dst_dir_fd")
                target = self._name_of(more[0], end) or "" if kind == "rename" else ""
                self.changes.append(Change(kind, name, target))
            return result

        return called

    def telling_of_new(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, flags: int, *more: Any, **options: Any) -> Any:
            name = self._name_of(path, options.get("dir_fd"))
            is_new = flags & os.O_CREAT and name and not os.path.lexists(self._root / name)
            descriptor = call(path, flags, *more, **options)
            if is_new and name:
                self.changes.append(Change("make", name))
            return descriptor

        return opened

    def telling_of_flushes(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def flushed(descriptor: int) -> None:
            call(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            name = self._name_of(path)
            if name is None:
                return
            if path.is_dir():
                self.changes.append(Change("flush", "" if name == "." else name))
            else:
                self.changes.append(Change("content", name, content=path.read_bytes()))

        return flushed

    def _name_of(self, path: Any, directory: int | None = None) -> str | None:
        place = "" if directory is None else os.readlink(f"/proc/self/fd/{directory}")
        try:
            return Path(place, os.fsdecode(path)).relative_to(self._root).as_posix()
        except (TypeError, ValueError):
            return None


def what_may_be_left(first: Tree, changes: list[Change]) -> Iterator[tuple[str, Tree]]:
    """Yields what may be on the disk after a power loss at any point, each with its story."""
    for point in range(len(changes) + 1):
        done = changes[:point]
        uncertain = [number for number in range(point) if not _is_certain(changes, number, point)]
        for lost in _choices(uncertain):
            kept = [change for number, change in enumerate(done) if number not in lost]
            names = [f"{changes[n].kind} {changes[n].path}" for n in sorted(lost)]
            last = f"{done[-1].kind} {done[-1].path}" if done else "nothing"
            yield f"after {point} calls ({last}), lost: {names}", first.with_changes(kept)


def _choices(uncertain: list[int]) -> Iterator[frozenset[int]]:
    """None, all, each single one, all but each single one, and all from each one on."""
    seen: set[frozenset[int]] = set()
    everything = frozenset(uncertain)
    for chosen in (
        frozenset[int](),
        everything,
        *(frozenset({number}) for number in uncertain),
        *(everything - {number} for number in uncertain),
        *(frozenset(n for n in uncertain if n >= number) for number in uncertain),
    ):
        if chosen not in seen:
            seen.add(chosen)
            yield chosen


def _is_certain(changes: list[Change], number: int, point: int) -> bool:
    change = changes[number]
    flushed = {c.path for c in changes[number:point] if c.kind == "flush"}
    return change.is_certain_at_once or change.directories <= flushed
