"""How tests are distributed over processes, and directories that no test shares with its user."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

NOBODY = 65534

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30
"""How much of it has to be free."""

WORKERS_PER_CORE = 2
"""Most tests wait: for a process, a heartbeat, a screen."""
MOST_WORKERS = 16

settings.register_profile("loaded machine", deadline=None)
settings.load_profile("loaded machine")


def pytest_configure(config: pytest.Config) -> None:
    """Puts temporary directories in memory, where a flush takes no time, unless one is named.

    Tests that depend on a file system mount their own.
    """
    named = config.getoption("basetemp") or "TMPDIR" in os.environ
    if not named and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Returns the number of processes that run tests; 0, for this one, if a file is named."""
    if any(".py" in argument for argument in config.args):
        return 0
    return min(MOST_WORKERS, WORKERS_PER_CORE * (os.cpu_count() or 1))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that take longest first, so that no process is left alone with one."""

    def order(item: pytest.Item) -> int:
        names = [mark.name for mark in item.iter_markers()]
        return 0 if "e2e" in names else 1 if "tensorflow" in names else 2

    of_file: dict[Path, int] = {}
    for item in items:
        of_file[item.path] = min(order(item), of_file.get(item.path, 2))
    items.sort(key=lambda item: of_file[item.path])


@pytest.fixture(autouse=True, scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory):
    """Gives all tests, and the processes that they start, their own configuration and cache."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture
def become_nobody() -> Iterator[Callable[[], None]]:
    """Gives up root's permissions until the test ends, if the tests run as root."""
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
