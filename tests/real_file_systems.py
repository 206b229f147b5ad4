"""File systems for fault tests: small ones to fill up, and one whose power can be cut.

Each test mounts its own. A test is skipped where nobody may mount them.

    with small_tmpfs(tmp_path / "disk", megabytes=2) as root:
        fill(root)                      # not one more byte can be written
    with small_ext4(tmp_path / "disk", megabytes=8) as root: ...
    with power_cut_disk(tmp_path / "disk") as disk:
        ...                             # write below disk.root
        disk.cut_power()                # here or in a child process: no write reaches the disk
        disk.restore_power()            # mounted again, without what was not flushed

A program that may be killed calls `own_mounts` first: what it mounts then ends with it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from requirements import require

FILLER = "filler"
"""The name of the file that `fill` writes."""

MOST_FILLED = 1 << 30

UNMOUNT_SECONDS = 10.0

_MOST_RESTS = 16

_GOING_DOWN = 0x8004587D
"""The request of XFS, which ext4 has taken over."""
_WITH_LOG, _WITHOUT_LOG = 1, 2
_MEGABYTES = 320
POWER_CUT_NEEDS = {
    "xfs": ("mounts", "loop devices", "XFS", "mkfs.xfs"),
    "ext4": ("mounts", "loop devices", "ext4", "mkfs.ext4"),
}
"""What `power_cut_disk` needs of a machine, by the kind of file system."""

_MAKE = {"xfs": ("mkfs.xfs", "-q"), "ext4": ("mkfs.ext4", "-q", "-m", "0")}
_OPTIONS = {"xfs": "nouuid", "ext4": "errors=remount-ro"}
_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS, unshare(2)


@contextmanager
def small_tmpfs(place: Path, *, megabytes: int = 2, inodes: int = 0) -> Iterator[Path]:
    """Mounts an empty tmpfs of `megabytes` at `place`; yields its root."""
    require("mounts")
    place.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m,nr_inodes={inodes}", "tmpfs", str(place))
    try:
        yield place
    finally:
        # Its files may carry a disk that another mount namespace keeps for a while.
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def make_read_only(place: Path) -> None:
    """Mounts the tmpfs at `place` again, so that not even root can write to it."""
    _mount("-o", "remount,ro", str(place))


@contextmanager
def small_ext4(place: Path, *, megabytes: int = 8) -> Iterator[Path]:
    """Mounts an empty ext4 of `megabytes` at `place`; yields a directory on it."""
    require("mounts", "loop devices", "ext4", "mkfs.ext4")
    image = _image(place, megabytes, "mkfs.ext4", "-q", "-m", "0")
    _mount("-o", "loop", str(image), str(place))
    try:
        root = place / "root"
        root.mkdir()
        yield root
    finally:
        _unmount(place)
        image.unlink()


def own_mounts() -> None:
    """Has this process see the mounts of others, and nobody else those that it makes.

    They are unmounted, and their loop devices are free, once it and its children have ended.
    """
    kernel = ctypes.CDLL(None, use_errno=True)
    if kernel.unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "no mounts of its own")
    _mount("--make-rslave", "/")


class PowerCutDisk:
    """A file system on a loop device; cutting its power loses all that was not flushed.

    Attributes:
        root: A directory on it.
    """

    def __init__(self, image: Path, place: Path, kind: str) -> None:
        self._image = image
        self._place = place
        self._kind = kind
        self._mount()
        self.root = place / "root"
        self.root.mkdir(exist_ok=True)
        # What a test finds after the cut must not depend on when this was flushed.
        self.flush()

    def flush(self) -> None:
        """Flushes all that was written to this disk, and nothing elsewhere."""
        subprocess.run(["sync", "--file-system", str(self.root)], check=True)

    def cut_power(self, *, with_log: bool = False) -> None:
        """Shuts the file system down.

        Args:
            with_log: Whether all names reach the disk before, as they do at any moment by
                themselves. The content of files does not.
        """
        descriptor = os.open(self._place, os.O_RDONLY)
        try:
            how = struct.pack("I", _WITH_LOG if with_log else _WITHOUT_LOG)
            fcntl.ioctl(descriptor, _GOING_DOWN, how)
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mounts the disk again, as a machine does after a power cut."""
        _unmount(self._place)
        self._mount()

    def _mount(self) -> None:
        """Mounts the image by a loop device of its own.

        `mount -o loop` takes the device that an image already has. A mount namespace that another
        test makes keeps that one, and with it the file system that was shut down.
        """
        find = ["losetup", "--find", "--show", str(self._image)]
        found = subprocess.run(find, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        device = found.stdout.strip()
        try:
            _mount("-t", self._kind, "-o", _OPTIONS[self._kind], device, str(self._place))
        finally:
            # It goes with the last mount of it.
            subprocess.run(["losetup", "--detach", device], check=True, capture_output=True)

    def close(self) -> None:
        """Unmounts it and deletes its image."""
        _unmount(self._place)
        self._image.unlink()


@contextmanager
def power_cut_disk(place: Path, kind: str = "xfs") -> Iterator[PowerCutDisk]:
    """Mounts an empty file system at `place`; its image is in memory: a flush takes no time.

    Args:
        place: Where to mount it.
        kind: `xfs` or `ext4`.
    """
    require(*POWER_CUT_NEEDS[kind])
    with small_tmpfs(place.with_name(f"{place.name}-image"), megabytes=_MEGABYTES) as memory:
        place.mkdir(parents=True, exist_ok=True)
        image = _image(memory / kind, _MEGABYTES, *_MAKE[kind])
        disk = PowerCutDisk(image, place, kind)
        try:
            yield disk
        finally:
            disk.close()


def fill(root: Path, *, leave: int = 0) -> Path:
    """Fills the file system of `root` up to about `leave` bytes.

    Returns:
        The file that fills it; delete it to free the space.
    """
    assert shutil.disk_usage(root).free < MOST_FILLED, f"{root} is no small file system"
    filler = root / FILLER
    with open(filler, "ab", buffering=0) as file:
        before = -1
        # A flush frees what was set aside for it.
        while before < (before := os.fstat(file.fileno()).st_size):
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(b"\xa5" * size) == size:
                        pass
            os.fsync(file.fileno())
        # The last block of an ext4: a long file would need a second one, to note where it is.
        for number in range(_MOST_RESTS):
            if is_full(root):
                break
            with suppress(OSError), open(root / f"{FILLER}-{number}", "ab", buffering=0) as rest:
                rest.write(b"\xa5")
                os.fsync(rest.fileno())
        if leave:
            file.truncate(max(0, os.fstat(file.fileno()).st_size - leave))
            os.fsync(file.fileno())
    return filler


def is_full(root: Path) -> bool:
    """Returns whether no file of one byte can be written below `root`."""
    probe = root / "probe"
    try:
        with open(probe, "wb", buffering=0) as file:
            return file.write(b"1") < 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return True
    finally:
        probe.unlink(missing_ok=True)


def _image(place: Path, megabytes: int, *make: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    image = place.with_name(f"{place.name}.img")
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run([*make, str(image)], check=True, capture_output=True)
    return image


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _unmount(place: Path) -> None:
    """Unmounts a file system, once the kernel has closed the loop devices that it carries."""
    until = time.monotonic() + UNMOUNT_SECONDS
    while subprocess.run(["umount", str(place)], capture_output=True).returncode:
        assert time.monotonic() < until, f"{place} is busy"
        time.sleep(0.05)
