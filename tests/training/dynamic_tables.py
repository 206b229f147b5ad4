"""Tables as a package brings them. Imports TensorFlow; import it within tests."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import gen_lookup_ops
from tensorflow.python.ops.lookup_ops import LookupInterface


class DynamicTable(LookupInterface):
    """A table that grows as it is inserted into, and is of no class of TensorFlow."""

    def __init__(self):
        super().__init__(tf.int64, tf.int64)
        self._resource_handle = gen_lookup_ops.mutable_hash_table_v2(
            shared_name=f"dynamic_{id(self)}", key_dtype=tf.int64, value_dtype=tf.int64
        )

    def insert(self, keys, values):
        gen_lookup_ops.lookup_table_insert_v2(self.resource_handle, keys, values)

    def lookup(self, keys):
        return gen_lookup_ops.lookup_table_find_v2(
            self.resource_handle, keys, tf.constant(-1, tf.int64)
        )

    def export(self):
        return gen_lookup_ops.lookup_table_export_v2(self.resource_handle, tf.int64, tf.int64)

    def _serialize_to_tensors(self):
        return dict(zip(("keys", "values"), self.export(), strict=True))

    def _restore_from_tensors(self, restored):
        return gen_lookup_ops.lookup_table_import_v2(
            self.resource_handle, restored["keys"], restored["values"]
        )


class LeftOut(DynamicTable):
    """A table that was made with `checkpoint=False`, which a package offers."""

    def _gather_saveables_for_checkpoint(self):
        return {}


class Embedding(tf.__internal__.tracking.AutoTrackable):
    """Keeps its rows in a table, which a script does not see."""

    # Names of the script end at objects of libraries.
    __module__ = "tensorflow"

    def __init__(self):
        self.tables = [DynamicTable()]

    def insert(self, keys, values):
        self.tables[0].insert(keys, values)

    def lookup(self, keys):
        return self.tables[0].lookup(keys)
