"""Fails the test that leaves something behind, and names it.

Module- and session-scoped fixtures, and what `lasting` covers, may outlast a test. All else that is
about to end gets the time that a loaded machine needs.
"""

from __future__ import annotations

import gc
import locale
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import tensorflow_processes
from waiting import wait_until

MARK = "STARTED_BY_TEST"
"""An environment variable that the processes of a test inherit, also those of another parent."""

VARIABLE = "environment variable"

_OF_PYTEST = "PYTEST_CURRENT_TEST"
_SIGNALS = {
    int(number): f"handler of signal {number.name}"
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
}


class Here(NamedTuple):
    """What is there at a moment.

    Attributes:
        things: The kind of each, and what identifies it.
        settings: Values that the process has once, by name.
        waited_for: Changes with each process that this one waited for, or had another one start.
    """

    things: set[tuple[str, Any]]
    settings: dict[str, Any]
    waited_for: tuple[int, int]
    has_tensorflow: bool


_numbers = count()
_before: Here | None = None
"""When the test that runs began."""


@pytest.fixture(autouse=True)
def nothing_left_behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """No test leaves anything behind. Of its own fixtures, this one ends last."""
    global _before
    place = str(tmp_path_factory.getbasetemp())
    mark = os.environ[MARK] = f"{os.getpid()}-{next(_numbers)}"
    before = _before = look(place)
    yield
    _before = None
    things = _new_things(before, mark, place)
    if things:
        # Nobody uses the values of the test's fixtures any more. Objects that refer to each other
        # keep what is theirs until they are collected.
        request.node.funcargs.clear()
        gc.collect()
        with suppress(AssertionError):
            wait_until(lambda: _is_gone(before, mark, place), 0, "nothing is left")
        things = _new_things(before, mark, place)
    # What has ended by the time it is named was not left behind.
    found = sorted(filter(None, (_described(*thing) for thing in things)))
    settings = _settings()
    if "tensorflow" in sys.modules and not before.has_tensorflow:
        # Its import sets variables.
        changed = {name for name in settings if name.startswith(VARIABLE)}
        before.settings.update((name, settings[name]) for name in changed)
    for name in sorted(_changed(before.settings, settings)):
        found.append(f"{name}: {settings.get(name)!r}, was {before.settings.get(name)!r}")
    for kind, one in things:
        if kind == "process":
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
    if found:
        pytest.fail("This test leaves behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Any:
    """Lets a fixture of a module or of the session outlast the test that asks for it first."""
    if fixturedef.scope == "function":
        return (yield)
    with lasting():
        return (yield)


@contextmanager
def lasting() -> Iterator[None]:
    """What begins in this block may outlast the test."""
    before = _before
    if before is None:
        yield
        return
    first = look("")
    # Within another such block, there is none.
    mark = os.environ.pop(MARK, None)
    try:
        yield
    finally:
        if mark is not None:
            os.environ[MARK] = mark
        now = look("")
        before.things.update(now.things - first.things)
        for name in _changed(first.settings, now.settings):
            before.settings[name] = now.settings.get(name)


def look(place: str) -> Here:
    """Looks at what a test could leave behind.

    Args:
        place: The directory of this process. Mounts elsewhere may be those of other tests.
    """
    things: set[tuple[str, Any]] = {("thread", thread) for thread in threading.enumerate()}
    things |= {("process", pid) for pid in _children()}
    things |= {
        ("process", one.pid) for one in [*tensorflow_processes.running] if one.poll() is None
    }
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    things |= {("mount", line.split()[4]) for line in mounts if place in line}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            file = os.fstat(int(number))
            things.add(("descriptor", (int(number), file.st_dev, file.st_ino)))
    started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt, tensorflow_processes.started
    return Here(things, _settings(), started, "tensorflow" in sys.modules)


def _settings() -> dict[str, Any]:
    mask = os.umask(0o077)
    os.umask(mask)
    settings: dict[str, Any] = {
        "umask": oct(mask),
        "locale": locale.setlocale(locale.LC_ALL),
        "time zone": time.tzname,
        "sys.excepthook": sys.excepthook,
        "threading.excepthook": threading.excepthook,
    }
    with suppress(FileNotFoundError):
        settings["working directory"] = os.getcwd()
    for number, name in _SIGNALS.items():
        handler = signal.getsignal(number)
        # That of the limit of a test goes as soon as the test fails.
        is_limit = getattr(handler, "__module__", "") == "pytest_timeout"
        settings[name] = signal.SIG_DFL if is_limit else handler
    for name, value in os.environ.items():
        if name not in (MARK, _OF_PYTEST):
            settings[f"{VARIABLE} {name}"] = value
    return settings


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    if before == after:
        return set()
    names = before.keys() | after.keys()
    return {name for name in names if before.get(name) != after.get(name)}


def _children() -> set[int]:
    """The processes that this one started and did not wait for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        lists = [task / "children" for task in Path("/proc/self/task").iterdir()]
        return {int(pid) for one in lists for pid in one.read_text().split()}
    except ChildProcessError:
        return set()
    except FileNotFoundError:
        # This kernel keeps no lists of children, or a thread has just ended.
        return {child.pid for child in psutil.Process().children()}


def _is_gone(before: Here, mark: str, place: str) -> bool:
    # What Python does before it starts the next process: it waits for those whose object is gone.
    subprocess._cleanup()  # type: ignore[attr-defined]
    return not _new_things(before, mark, place)


def _new_things(before: Here, mark: str, place: str) -> set[tuple[str, Any]]:
    now = look(place)
    things = now.things - before.things
    # Looking at all processes takes as long as a quick test.
    if now.waited_for != before.waited_for or any(kind == "process" for kind, _ in things):
        things |= {("process", pid) for pid in _with_mark(mark)} - before.things
    return things


def _with_mark(mark: str) -> Iterator[int]:
    """The processes that inherited the mark of a test, whoever is their parent."""
    wanted = f"{MARK}={mark}\0".encode()
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and wanted in Path(f"/proc/{name}/environ").read_bytes():
                yield int(name)


def _described(kind: str, one: Any) -> str:
    """Names what is left; empty if it has just ended."""
    if kind == "thread":
        return f"thread {one.name}"
    if kind == "mount":
        return f"mount {one}"
    with suppress(OSError):
        if kind == "descriptor":
            return f"descriptor {one[0]}: {os.readlink(f'/proc/self/fd/{one[0]}')}"
        words = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return f"process {one}: {words.strip() or 'a zombie'}"
    return ""
