"""The training loop: `TrainingRun`, what it does between calls, and how it ends.

Saving and restoring belong in `training.checkpoint`; the steps themselves in `training.steps`.
"""
