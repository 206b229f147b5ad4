"""The training loop: `TrainingRun`, step functions, input, commands, and agreement of workers.

Saving and restoring belong in `training.checkpoint`.
"""
