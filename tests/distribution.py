"""Which processes run which tests, and in which order."""

from __future__ import annotations

import inspect
import os
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path

import pytest
import xdist

TESTS = Path(__file__).parent

QUICK = "quick"
WEEKLY = "weekly"
"""Its run tries other examples each time, and as many as a test names by `weekly.tries`."""
SLOW = {"tensorflow", "e2e", "faults", "cluster", WEEKLY}
"""Markers of tests that are not quick. Nor are those that run the app, or try many cases."""

WORKERS_PER_CORE = 2
"""Most tests wait: for a process, a heartbeat, a screen."""
WORKERS_THAT_WAIT = 1
"""One more, since one waits for Slurm for minutes."""
MOST_WORKERS = 16

TENSORFLOW_GROUPS = ("tensorflow-1", "tensorflow-2")
"""As many processes import TensorFlow, for the tests that use it themselves. It takes seconds and
500 MB."""
_USES_TENSORFLOW = re.compile(
    r"^ +(import|from) (tensorflow|keras|tfckpt_trainer\.training)\b"
    r"|\b(make_run|run_here|with_tensorflow)\b",
    re.MULTILINE,
)
"""In the text of their modules."""

LONGEST = ("test_cluster_slurm", "test_cluster_jobs", *TENSORFLOW_GROUPS)
"""Groups that begin at once."""
FIRST = "faults"
"""These fork for every fault. A fork is cheap while its process has not imported TensorFlow."""
SLOWEST_FIRST = ("cluster", "e2e", "tensorflow", "launch", "tui", "catalog", "rundir")
"""Folders, and those with TensorFlow, in the order in which they begin; others come last."""
TENSORFLOW_PLACES = 3
"""How many of them start TensorFlow."""
COMPUTING_SHARE = 0.8
"""The part of all tests among which those that start TensorFlow are distributed."""


@dataclass
class Group:
    """Tests that one process runs, one after another.

    Attributes:
        name: That of the group for xdist; of a test on its own, its node id.
        names: The name of their folder, and those of their markers.
    """

    name: str
    names: set[str]
    items: list[pytest.Item]

    @property
    def place(self) -> int:
        """Its place in the order of `SLOWEST_FIRST`."""
        return next((n for n, name in enumerate(SLOWEST_FIRST) if name in self.names), sys.maxsize)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds an option that no result may depend on."""
    parser.addoption("--order-seed", help="run the tests in the random order of this seed")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Returns the number of processes that run tests; 0, for this one, if a file is named."""
    if any(".py" in argument for argument in config.args):
        return 0
    cores = os.cpu_count() or 1
    if config.getoption("markexpr") == QUICK:
        return min(MOST_WORKERS, WORKERS_PER_CORE * cores)
    return min(MOST_WORKERS, WORKERS_PER_CORE * cores + WORKERS_THAT_WAIT)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles changed test modules once, before several processes would do so at the same time.

    To rewrite the assertions of all modules takes one of them ten seconds.
    """
    if not xdist.is_xdist_controller(session):
        return
    changed = [str(path) for path in TESTS.rglob("test_*.py") if not _is_compiled(path)]
    if not changed:
        return
    compiler = os.fork()
    if compiler:
        os.waitpid(compiler, 0)
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        session.config.pluginmanager.unregister(name="terminalreporter")
        session.perform_collect(changed)
    finally:
        # What is wrong is said by the processes that run the tests.
        os._exit(0)


def _is_compiled(path: Path) -> bool:
    changed = path.stat().st_mtime
    compiled = path.parent.glob(f"__pycache__/{path.stem}.*-pytest-*.pyc")
    return any(one.stat().st_mtime >= changed for one in compiled)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the quick tests. Distributes each test on its own, except those that share a fixture.

    Slow tests come first, so that no process is left alone with one. Tests that compute are mixed
    with tests that wait. A weekly run also tries properties. With `--order-seed`, the order is
    random, but groups stay together.
    """
    groups: dict[str, Group] = {}
    weekly = is_weekly(config)
    tensorflow_groups = _tensorflow_groups(items)
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        if _is_quick(item, markers):
            item.add_marker(QUICK)
        if weekly and _tries_examples(item):
            item.add_marker(WEEKLY)
        name = tensorflow_groups.get(item.path) if "tensorflow" in markers else None
        if name is None and _shares_with_its_module(item):
            name = item.path.stem
        if name is not None:
            item.add_marker(pytest.mark.xdist_group(name))
        name = name or item.nodeid
        group = groups.setdefault(name, Group(name, {item.path.parent.name}, []))
        group.items.append(item)
        group.names |= markers
    seed = config.getoption("order_seed")
    ordered = _in_order(list(groups.values())) if seed is None else _shuffled(groups, seed)
    items[:] = [item for group in ordered for item in group.items]


def _tensorflow_groups(items: Sequence[pytest.Item]) -> dict[Path, str]:
    """Gives each module whose tests use TensorFlow in their own process one of the groups."""
    modules = dict.fromkeys(item.path for item in items)
    using = [path for path in modules if uses_tensorflow(path)]
    return dict(zip(using, cycle(TENSORFLOW_GROUPS), strict=False))


def _shuffled(groups: dict[str, Group], seed: str) -> list[Group]:
    chance = random.Random(seed)
    for group in groups.values():
        chance.shuffle(group.items)
        # A module whose tests are apart would set up its fixtures again for each.
        modules = {item.path: chance.random() for item in group.items}
        group.items.sort(key=lambda item: modules[item.path])
    return chance.sample(list(groups.values()), len(groups))


def _in_order(groups: list[Group]) -> list[Group]:
    longest = [group for name in LONGEST for group in groups if group.name == name]
    rest = [group for group in groups if group.name not in LONGEST]
    forking = [group for group in rest if FIRST in group.names]
    others = [group for group in rest if FIRST not in group.names]
    others.sort(key=lambda group: group.place)
    computing = [group for group in others if group.place < TENSORFLOW_PLACES]
    waiting = others[len(computing) :]
    mixed = [(COMPUTING_SHARE * n / len(computing), group) for n, group in enumerate(computing)]
    mixed += [(n / len(waiting), group) for n, group in enumerate(waiting)]
    mixed.sort(key=lambda one: one[0])
    return [*longest, *forking, *(group for _, group in mixed)]


@cache
def uses_tensorflow(module: Path) -> bool:
    """Says whether tests of a module use TensorFlow in their own process."""
    return _USES_TENSORFLOW.search(module.read_text()) is not None


def is_weekly(config: pytest.Config) -> bool:
    """Says whether this is a run of the weekly tests."""
    return bool(config.getoption("markexpr") == WEEKLY)


def _tries_examples(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "function", None), "is_hypothesis_test", False))


def _is_quick(item: pytest.Item, markers: set[str]) -> bool:
    """Says whether a test starts no process, runs no app, and tries few cases."""
    fixtures = getattr(item, "fixturenames", ())
    runs_the_app = (
        inspect.iscoroutinefunction(getattr(item, "function", None)) or "snap_compare" in fixtures
    )
    return not (runs_the_app or _tries_examples(item) or markers & SLOW)


def _shares_with_its_module(item: pytest.Item) -> bool:
    """Says whether a test uses a fixture that all tests of its module share."""
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    return any(found and found[-1].scope == "module" for found in fixtures.values())
