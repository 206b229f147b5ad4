"""Two clients of one network disk, for the tests of this folder."""

from __future__ import annotations

import pytest
from network_disks import CACHE_SECONDS, short_directory, sshfs_mounts

from faulty_file_system import faulty_mounts


@pytest.fixture(scope="module")
def mounts():
    """Two clients of one server, which ask it each time."""
    with short_directory() as place, faulty_mounts(place, "a", "b") as made:
        yield made


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
