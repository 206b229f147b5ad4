"""Files that are open already, for programs that open by name.

TensorFlow opens the files of a checkpoint by name. Whoever may write to their directory can put
others in their place after they were looked at: it would read those, or wait for the writer of a
pipe without end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tfckpt_trainer.bundle.index import index_path, read_shard_count, shard_path
from tfckpt_trainer.bundle.links import open_inside
from tfckpt_trainer.rundir.storage.scratch_directory import scratch_links

_OPEN_FILES = "/proc/{process}/fd"
"""Where Linux shows the open files of a process as links, which lead to them whatever their name
has become."""


@contextmanager
def opened_checkpoint(prefix: Path) -> Iterator[Path]:
    """Opens the files of a checkpoint, and yields a prefix by which this process reads them.

    It is valid in the block alone. It is `prefix` itself where the system has no such links, and
    where temporary files have no room: that may not keep a run from its checkpoints.

    Args:
        prefix: The path without `.index`.

    Raises:
        BundleError: The index is damaged.
        DamagedFileError: A file is a pipe or another thing that is no file.
        OSError: A file cannot be opened.
    """
    here = _OPEN_FILES.format(process=os.getpid())
    if not os.path.isdir(here):
        yield prefix
        return
    count = read_shard_count(prefix)
    with ExitStack() as stack:
        opened = {
            path.name: f"{here}/{stack.enter_context(open_inside(path)).fileno()}"
            for path in (index_path(prefix), *(shard_path(prefix, i, count) for i in range(count)))
        }
        place = stack.enter_context(scratch_links("tfckpt-", opened))
        yield place / prefix.name if place is not None else prefix
