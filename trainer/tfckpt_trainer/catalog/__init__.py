"""The checkpoints of a run directory: their states, lineage, verification and retention.

Code that only reads TensorFlow's file format belongs in `bundle`.
"""
