"""Reads crafted indexes with TensorFlow wherever our reader finds nothing wrong, and compares.

Arguments: an empty directory, the first seed, how many, and for how many seconds at most. A
difference is printed. TensorFlow may abort: the last seed is in the file `seed`.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from crafted_indexes import crafted, write_sound

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.tensors import read_strings, read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify


def ours(prefix: Path) -> dict[str, object] | None:
    """Returns all tensors as our reader has them; None if it reports anything."""
    if verify(prefix).findings:
        return None
    index = read_index(prefix)
    found = {}
    for name, entry in index.entries.items():
        content: object = None
        if not entry.slices and entry.dtype == "string":
            content = read_strings(prefix, entry)
        elif not entry.slices and entry.dtype != "variant":
            content = read_tensor_bytes(prefix, entry)
        found[name] = (list(entry.shape), entry.dtype, content)
    return found


def theirs(prefix: Path, names: dict[str, object]) -> dict[str, object]:
    """Returns all tensors as TensorFlow has them."""
    reader = tf.train.load_checkpoint(str(prefix))
    types = reader.get_variable_to_dtype_map()
    found = {}
    for name, shape in reader.get_variable_to_shape_map().items():
        content: object = None
        if types[name] == tf.variant or max(shape, default=0) >= 1 << 60:
            # TensorFlow has them, NumPy cannot.
            found[name] = shape, types[name].name, names.get(name, (0, 0, 0))[2]
            continue
        tensor = reader.get_tensor(name)
        if name in names and names[name][2] is not None:
            if types[name] == tf.string:
                content = np.asarray(tensor, object).ravel().tolist()
            else:
                content = np.asarray(tensor).tobytes()
        found[name] = (shape, types[name].name, content)
    return found


def main() -> None:
    directory, first, count, seconds = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    prefix = directory / "ckpt"
    entries = write_sound(prefix)
    path = f"{prefix}.index"
    with open(directory / "seed", "wb+") as file:
        file.write(bytes(16))
        file.flush()
        progress = mmap.mmap(file.fileno(), 16)
    end = time.monotonic() + seconds
    clean = 0
    for seed in range(first, first + count):
        with open(path, "wb") as index:
            index.write(crafted(entries, seed))
        mine = ours(prefix)
        clean += mine is not None
        progress[:] = struct.pack("<QQ", seed + 1, clean)
        if mine is not None:
            try:
                other = theirs(prefix, mine)
            except Exception as error:
                print(f"seed {seed}: TensorFlow fails: {error!r:.300}", flush=True)
            else:
                if other != mine:
                    names = sorted(n for n in mine | other if mine.get(n) != other.get(n))
                    first = names[0]
                    here, there = mine.get(first), other.get(first)
                    print(f"seed {seed}: {first}: {here!r:.99} != {there!r:.99}", flush=True)
        if seed % 64 == 0 and time.monotonic() > end:
            break
    # Tearing down TensorFlow takes long.
    sys.stdout.flush()
    os._exit(0)


main()
