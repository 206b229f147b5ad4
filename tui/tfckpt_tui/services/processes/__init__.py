"""Actions that start processes: workers, with a supervisor or without, and TensorBoard.

The supervisor itself belongs in `tfckpt_trainer.launch`.
"""
