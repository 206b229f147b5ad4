"""Actions that run a process of their own: a launch in the foreground, an export, TensorBoard.

The supervisor itself belongs in `tfckpt_trainer.launch`.
"""
