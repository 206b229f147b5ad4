"""What all tests share: where their files are, and that no test changes what another finds."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from command_running import Tool
from distribution import (
    WEEKLY,
    is_weekly,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_sessionstart,
    pytest_xdist_auto_num_workers,
    uses_tensorflow,
)
from requirements import require
from tfckpt_trainer.cluster.gpu_shares import NO_GPUS, visible_gpus
from tfckpt_trainer.rundir.storage import documents

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_sessionstart",
    "pytest_xdist_auto_num_workers",
]

pytest_plugins = ("leftovers",)

NOBODY = 65534

GPUS = visible_gpus(os.environ).names

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30
"""How much of it has to be free."""

OBJECTS_BETWEEN_COLLECTIONS = 10_000
"""The app makes many objects that live long; with 700, the garbage collector takes a tenth of the
time of its tests."""

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
    settings.load_profile(WEEKLY if is_weekly(config) else "each change")
    if not is_weekly(config):
        # Hypothesis puts constants of all imported modules into its examples: then they would
        # depend on which tests ran before. Reading the modules takes seconds in each process, too.
        providers.is_local_module_file = lambda path: False
    # Garbage is collected from the end of collection on; see `pytest_collection_finish`.
    gc.disable()
    # Hundreds of processes import the same modules. Each would compile them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell starts background jobs with SIGINT and SIGQUIT ignored, and `nohup` with SIGHUP: what
    # tests start would ignore them too.
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(autouse=True)
def hidden_gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the GPUs of this machine: tests start more workers than it may have."""
    if GPUS and request.path.parent.name != "gpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", NO_GPUS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose marker `needs` names something that is missing, before any fixture."""
    require(*(name for mark in item.iter_markers("needs") for name in mark.args))
    if item.get_closest_marker("tensorflow") and uses_tensorflow(item.path):
        _import_tensorflow()


@cache
def _import_tensorflow() -> None:
    """Imports it once, and keeps the garbage collector from its million objects."""
    gc.disable()
    import tensorflow as tf

    import tfckpt_trainer.training  # noqa: F401

    # As the scripts of the tests, with which these tests compare bits.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, bool, bool]:
    """Hides the objects of a test from the next ones.

    A run looks through all objects of its process for those that nobody passed to it. TensorFlow
    and Keras keep some of every test, thousands in the end.
    """
    was_run = yield
    if "tensorflow" in sys.modules:
        gc.collect()
        gc.freeze()
    return was_run


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


@pytest.fixture(autouse=True, scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Gives all tests, and the processes that they start, their own configuration and cache."""
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
    homes = {name: tmp_path_factory.mktemp(name.lower()) for name in names}
    with pytest.MonkeyPatch.context() as patch:
        for name, home in homes.items():
            patch.setenv(name, str(home))
        yield homes


@pytest.fixture(autouse=True)
def settings_of_one_test(own_home: dict[str, Path]) -> Iterator[None]:
    """What a test configures, and what the app remembers of it, is gone with the test."""
    yield
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        for path in own_home[name].iterdir():
            shutil.rmtree(path)


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
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """`tfckpt-tui` in this process."""
    return Tool(capsys)


@pytest.fixture
def become_nobody() -> Iterator[Callable[[], None]]:
    """Gives up root's permissions until the test ends, if the tests run as root."""
    # Imported when a process is forked, and when a group is named. Python may lie in a directory
    # of root.
    for name in ("multiprocessing.popen_fork", "grp"):
        import_module(name)
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
