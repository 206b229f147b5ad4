"""Takes tensors out of checkpoints, and makes new checkpoints of them.

Reading and writing file formats belongs in `tfckpt_trainer.bundle`.
"""
