"""How tests are distributed over processes, and directories that no test shares with its user."""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from requirements import require
from tfckpt_trainer.cluster.gpu_shares import NO_GPUS, visible_gpus
from tfckpt_trainer.rundir.storage import documents

NOBODY = 65534

GPUS = visible_gpus(os.environ).names

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30
"""How much of it has to be free."""

QUICK = "quick"
SLOW = ("tensorflow", "e2e", "faults", "cluster", "weekly")
"""Markers of tests that are not quick. Nor are those that run the app, or try many cases."""

WORKERS_PER_CORE = 2
"""Most tests wait: for a process, a heartbeat, a screen."""
WORKERS_THAT_WAIT = 1
"""One more, since one waits for Slurm for minutes."""
MOST_WORKERS = 16

LONGEST = ("test_cluster_slurm", "test_cluster_jobs")
"""Modules whose tests cannot be distributed; they begin at once."""
FIRST = "faults"
"""These fork for every fault. A fork is cheap while its process has not imported TensorFlow."""
SLOWEST_FIRST = ("cluster", "e2e", "tensorflow", "launch", "tui", "catalog", "rundir")
"""Folders, and those with TensorFlow, in the order in which they begin; others come last."""
TENSORFLOW_PLACES = 3
"""How many of them start TensorFlow."""
COMPUTING_SHARE = 0.8
"""The part of all tests among which those that start TensorFlow are distributed."""

OBJECTS_BETWEEN_COLLECTIONS = 10_000
"""The app makes many objects that live long; with 700, the garbage collector takes a tenth of the
time of its tests."""

WEEKLY = "weekly"
"""Its run tries other examples each time, and as many as a test names by `weekly.tries`."""
EXAMPLES = 25
"""Of a property in the other runs, the same each time: no change fails by an unlucky one."""
DEPENDS_ON_LOAD_OR_FIXTURES = (
    HealthCheck.too_slow,
    HealthCheck.differing_executors,
    HealthCheck.function_scoped_fixture,
)

settings.register_profile(
    WEEKLY, deadline=None, suppress_health_check=DEPENDS_ON_LOAD_OR_FIXTURES, print_blob=True
)
settings.register_profile(
    "each change", settings.get_profile(WEEKLY), max_examples=EXAMPLES, derandomize=True
)


def pytest_configure(config: pytest.Config) -> None:
    """Puts temporary directories in memory, where a flush takes no time, unless one is named.

    Tests that depend on a file system mount their own.
    """
    named = config.getoption("basetemp") or "TMPDIR" in os.environ
    if not named and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    settings.load_profile(WEEKLY if _is_weekly(config) else "each change")
    # Garbage is collected from the end of collection on; see `pytest_collection_finish`.
    gc.disable()
    # Hundreds of processes import the same modules. Each would compile them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell starts background jobs with this signal ignored, and so would be what tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def hidden_gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the GPUs of this machine: tests start more workers than it may have."""
    if GPUS and request.path.parent.name != "gpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", NO_GPUS)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Returns the number of processes that run tests; 0, for this one, if a file is named."""
    if any(".py" in argument for argument in config.args):
        return 0
    cores = os.cpu_count() or 1
    if config.getoption("markexpr") == QUICK:
        return min(MOST_WORKERS, WORKERS_PER_CORE * cores)
    return min(MOST_WORKERS, WORKERS_PER_CORE * cores + WORKERS_THAT_WAIT)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the quick tests. Distributes each test on its own, except those that share a fixture.

    Slow tests come first, so that no process is left alone with one. Tests that compute are mixed
    with tests that wait. A weekly run also tries properties.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if _is_quick(item):
            item.add_marker(QUICK)
        if _is_weekly(config) and _tries_examples(item):
            item.add_marker(WEEKLY)
        module = _shared_by_module(item)
        groups.setdefault(module or item.nodeid, []).append(item)
        if module:
            item.add_marker(pytest.mark.xdist_group(module))

    def place(group: list[pytest.Item]) -> int:
        starts = any(item.get_closest_marker("tensorflow") for item in group)
        names = {group[0].path.parent.name, *(["tensorflow"] if starts else [])}
        return next((n for n, name in enumerate(SLOWEST_FIRST) if name in names), sys.maxsize)

    longest: list[list[pytest.Item]] = []
    forking: list[list[pytest.Item]] = []
    others: list[list[pytest.Item]] = []
    for group in groups.values():
        if group[0].path.stem in LONGEST:
            longest.append(group)
        else:
            (forking if group[0].get_closest_marker(FIRST) else others).append(group)
    longest.sort(key=lambda group: LONGEST.index(group[0].path.stem))
    ordered = sorted(others, key=place)
    computing = [group for group in ordered if place(group) < TENSORFLOW_PLACES]
    waiting = ordered[len(computing) :]
    mixed = [(COMPUTING_SHARE * n / len(computing), group) for n, group in enumerate(computing)]
    mixed += [(n / len(waiting), group) for n, group in enumerate(waiting)]
    mixed.sort(key=lambda one: one[0])
    items[:] = [
        item for group in (*longest, *forking, *(group for _, group in mixed)) for item in group
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose marker `needs` names something that is missing, before any fixture."""
    require(*(name for mark in item.iter_markers("needs") for name in mark.args))


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from looking through thousands of tests again and again.

    Raises:
        pytest.UsageError: A module imports TensorFlow: 500 MB and seconds in each process.
    """
    if "tensorflow" in sys.modules:
        raise pytest.UsageError("A test module imports TensorFlow. Import it within the tests.")
    gc.freeze()
    gc.enable()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])


def _is_weekly(config: pytest.Config) -> bool:
    return bool(config.getoption("markexpr") == WEEKLY)


def _tries_examples(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "function", None), "is_hypothesis_test", False))


def _is_quick(item: pytest.Item) -> bool:
    """Says whether a test starts no process, runs no app, and tries few cases."""
    runs_the_app = inspect.iscoroutinefunction(getattr(item, "function", None))
    marked = any(item.get_closest_marker(name) for name in SLOW)
    return not (runs_the_app or _tries_examples(item) or marked)


def _shared_by_module(item: pytest.Item) -> str | None:
    """Returns the name of the module whose tests share a fixture with `item`, if it uses one."""
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    shared = any(found and found[-1].scope == "module" for found in fixtures.values())
    return item.path.stem if shared else None


@pytest.fixture(autouse=True, scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory):
    """Gives all tests, and the processes that they start, their own configuration and cache."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture(autouse=True)
def own_part_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run in a process that trains nothing, whatever an earlier one called in it."""
    monkeypatch.setattr(documents, "_training", threading.Event())


@pytest.fixture(autouse=True)
def tensorflow_only_where_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test without the marker imports TensorFlow: 500 MB, and seconds, in its process."""
    before = "tensorflow" in sys.modules
    yield
    if not (before or request.node.get_closest_marker("tensorflow")):
        assert "tensorflow" not in sys.modules, "Mark this test with `tensorflow`."


@pytest.fixture
def become_nobody() -> Iterator[Callable[[], None]]:
    """Gives up root's permissions until the test ends, if the tests run as root."""
    # Imported when a process is forked. Python may lie in a directory of root.
    import_module("multiprocessing.popen_fork")
    own = os.geteuid()

    def become() -> None:
        if own == 0:
            os.seteuid(NOBODY)

    yield become
    os.seteuid(own)


@pytest.fixture
def open_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run directory that all users can read, with a cache that all users can write.

    Only its owner can read `tmp_path`.
    """
    place = Path(tempfile.mkdtemp(prefix="tfckpt-open-"))
    place.chmod(0o755)
    cache = place / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    root = place / "run"
    root.mkdir()
    yield root
    shutil.rmtree(place)
