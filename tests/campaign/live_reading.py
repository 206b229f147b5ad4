"""Reads the checkpoints of `live_training.py` below a directory, as plain TensorFlow does.

It prints one JSON object: by relative path of the checkpoint, its numbers, or why it has none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

NAMES = ("attempts", "branches", "values", "elements")


def read(prefix: Path) -> dict[str, object]:
    """Returns the numbers of a checkpoint: of each step up to the last that has one."""
    try:
        # `tf.train.load_checkpoint` would take a directory of this name for one of checkpoints.
        reader = tf.compat.v1.train.NewCheckpointReader(str(prefix))
        told = {
            name: reader.get_tensor(f"model/told/{at}/.ATTRIBUTES/VARIABLE_VALUE").tolist()
            for at, name in enumerate(NAMES)
        }
        now = reader.get_tensor("model/now/.ATTRIBUTES/VARIABLE_VALUE").tolist()
        weight = float(reader.get_tensor("model/weight/.ATTRIBUTES/VARIABLE_VALUE"))
    except (tf.errors.OpError, IndexError, KeyError, ValueError) as error:
        return {"error": str(error)[:200]}
    used = [at for one in told.values() for at, value in enumerate(one) if value]
    last = max(used, default=-1) + 1
    return {**{name: one[:last] for name, one in told.items()}, "now": now, "weight": weight}


root = Path(sys.argv[1])
found = [*root.glob("ckpt-*.index"), *(root / ".tfckpt" / "trash").rglob("ckpt-*.index")]
prefixes = [path.with_suffix("") for path in found if path.is_file()]
print(json.dumps({str(prefix.relative_to(root)): read(prefix) for prefix in prefixes}))
