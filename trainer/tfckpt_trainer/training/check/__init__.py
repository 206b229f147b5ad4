"""Finds state that a checkpoint would not hold, and records steps to compare repeated ones.

Works inside the training process. What the records of all workers mean is decided without
TensorFlow, in `tfckpt_tui.services.exactness`.
"""
