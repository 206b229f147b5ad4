"""Writes TensorFlow's checkpoint format without TensorFlow: data files, index and object graph.

Which tensors a new checkpoint gets, and its record, belong in `catalog` or above.
"""
