"""Detects the type of the file system of a directory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_NETWORK = {
    "9p", "acfs", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb3",
    "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
}  # fmt: skip

_MOST_LINKS = 40

_MOUNT_TABLE = Path("/proc/self/mounts")
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def is_network_file_system(path: Path) -> bool:
    """Whether `path` is on a network file system, where other machines may write too.

    File events, timestamps and process lists are not reliable there. FUSE file systems
    (`fuse.sshfs`, `fuse.gcsfuse`, ...) count as network file systems. The file system itself is
    not accessed.
    """
    return _is_network(mounted_type(path))


def mounted_type(path: Path) -> str:
    """Returns the type of the file system that is mounted at `path`; empty if it is unknown."""
    return file_system_type(path, _mounts())


def file_system_type(path: Path, kinds: Mapping[str, str]) -> str:
    """Returns the type of the file system of `path`; empty if it is unknown.

    Args:
        path: Path that may not exist.
        kinds: Types by mount point.
    """
    place, rest = "/", list(Path(os.path.abspath(path)).parts[1:])
    kind = kinds.get(place, "")
    links = 0
    # On a network disk, even asking for a link may wait for ever.
    while rest and not _is_network(kind):
        place = os.path.join(place, rest.pop(0))
        kind = kinds.get(place, kind)
        if _is_network(kind) or links == _MOST_LINKS:
            break
        target = _target_of(place)
        if target:
            links += 1
            target = os.path.join(os.path.dirname(place), target)
            place, rest = "/", [*Path(os.path.normpath(target)).parts[1:], *rest]
            kind = kinds.get(place, "")
    for part in rest:
        place = os.path.join(place, part)
        kind = kinds.get(place, kind)
    return kind


def _target_of(path: str) -> str:
    """Returns where a link leads; empty for what is no link, or not there."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _is_network(kind: str) -> bool:
    return kind in _NETWORK or kind.startswith("fuse.")


def _mounts() -> Mapping[str, str]:
    """Returns types by mount point; none if they are unknown, as if all disks were local."""
    try:
        return _parsed(_MOUNT_TABLE.read_bytes())
    except OSError:
        return _mounts_elsewhere()


@lru_cache(maxsize=1)
def _parsed(table: bytes) -> Mapping[str, str]:
    """Returns types by mount point; of several mounts at one point, that of the last."""
    lines = (line.split(b" ") for line in table.splitlines())
    return {
        os.path.normpath(_unescaped(words[1])): os.fsdecode(words[2]).lower()
        for words in lines
        if len(words) > 2
    }


def _unescaped(word: bytes) -> str:
    """Returns a mount point, in which the kernel writes blanks and backslashes as octal numbers."""
    return os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), word))


def _mounts_elsewhere() -> Mapping[str, str]:
    """Returns the same where there is no `/proc`."""
    # Imported here, as where it looks at processes: it takes 15 ms, and most commands do neither.
    import psutil

    try:
        parts = psutil.disk_partitions(all=True)
    except (OSError, psutil.Error):
        return {}
    return {os.path.normpath(part.mountpoint): part.fstype.lower() for part in parts}
