"""Reads TensorFlow's checkpoint format without TensorFlow: index, tensors and object graph.

Code that knows about runs, records or retention belongs in `catalog`.
"""
