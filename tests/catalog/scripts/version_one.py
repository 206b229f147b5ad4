"""Saves in TensorFlow's V1 format, in one file and in shards, with and without the graph."""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf

compat = tf.compat.v1


def main() -> None:
    """Writes three directories below the one that was named; converts one to the V2 format."""
    root = Path(sys.argv[1])
    for kind in ("plain", "sharded", "no-graph"):
        directory = root / kind
        directory.mkdir()
        with compat.Graph().as_default(), compat.Session() as session:
            with compat.device("/cpu:0"):
                compat.get_variable("v", initializer=tf.constant([1.0, 2.0, 3.0]))
            compat.get_variable("w", initializer=tf.constant(5))
            session.run(compat.global_variables_initializer())
            saver = compat.train.Saver(
                write_version=compat.train.SaverDef.V1, sharded=kind == "sharded"
            )
            for step in (100, 200):
                saver.save(
                    session,
                    str(directory / "model.ckpt"),
                    global_step=step,
                    write_meta_graph=kind != "no-graph",
                )
    for kind, name in (("plain", "model.ckpt-200"), ("sharded", "model.ckpt-200-?????-of-00002")):
        with compat.Graph().as_default(), compat.Session() as session:
            saver = compat.train.import_meta_graph(str(root / kind / "model.ckpt-200.meta"))
            saver.restore(session, str(root / kind / name))
            compat.train.Saver().save(session, str(root / f"{kind}-v2" / "model.ckpt-200"))


if __name__ == "__main__":
    main()
