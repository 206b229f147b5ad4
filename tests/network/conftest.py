"""Two clients of one network disk, for the tests of this folder."""

from __future__ import annotations

import itertools

import pytest
from network_disks import CACHE_SECONDS, short_directory, sshfs_mounts

from faulty_file_system import faulty_mounts
from tfckpt_trainer.rundir.paths import RunDirectory

_numbers = itertools.count()


@pytest.fixture(scope="module")
def mounts():
    """Two clients of one server, which ask it each time."""
    with short_directory() as place, faulty_mounts(place, "a", "b") as made:
        yield made


@pytest.fixture
def places(mounts):
    """A run directory at the server and at its first client, and the second client."""
    here, there = mounts
    name = f"run-{next(_numbers)}"
    return RunDirectory(here.root.parent / "server" / name), RunDirectory(here.root / name), there


@pytest.fixture(scope="module")
def cached():
    """Two clients that remember names and attributes."""
    with (
        short_directory() as place,
        faulty_mounts(place, "a", "b", cache_seconds=CACHE_SECONDS) as made,
    ):
        yield tuple(mount.root for mount in made)


@pytest.fixture(scope="module")
def by_ssh():
    with short_directory() as place, sshfs_mounts(place, "a", "b") as made:
        yield made
