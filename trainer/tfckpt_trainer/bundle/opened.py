"""Files that are open already, for programs that open by name.

TensorFlow opens the files of a checkpoint by name. Whoever may write to their directory can put
others in their place after they were looked at: it would read those, or wait for the writer of a
pipe without end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tfckpt_trainer.bundle.index import index_path, read_shard_count, shard_path
from tfckpt_trainer.bundle.links import open_inside
from tfckpt_trainer.rundir.storage.files import path_of_open
from tfckpt_trainer.rundir.storage.scratch_directory import scratch_links


@contextmanager
def opened_checkpoint(prefix: Path) -> Iterator[Path]:
    """Opens the files of a checkpoint, and yields a prefix by which this process reads them.

    It is valid in the block alone. It is `prefix` itself where open files have no path, and
    where temporary files have no room: that may not keep a run from its checkpoints.

    Args:
        prefix: The path without `.index`.

    Raises:
        BundleError: The index is damaged.
        DamagedFileError: A file is a pipe or another thing that is no file.
        OSError: A file cannot be opened.
    """
    count = read_shard_count(prefix)
    paths = index_path(prefix), *(shard_path(prefix, number, count) for number in range(count))
    # TensorFlow takes a prefix for a pattern, and `[` and a backslash for parts of one.
    name = re.sub(r"[][*?\\]", "_", prefix.name)
    with ExitStack() as stack:
        files = {path.name: stack.enter_context(open_inside(path)).fileno() for path in paths}
        opened = {
            f"{name}{own.removeprefix(prefix.name)}": path
            for own, file in files.items()
            if (path := path_of_open(file))
        }
        place = stack.enter_context(scratch_links("tfckpt-", opened)) if opened else None
        yield place / name if place is not None else prefix
