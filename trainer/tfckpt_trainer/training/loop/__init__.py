"""The training loop: `TrainingRun`, step functions, input, commands, and the sync of workers.

Saving and restoring belong in `training.checkpoint`.
"""
