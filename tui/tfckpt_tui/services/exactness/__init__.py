"""Checks whether training repeats its steps exactly after a restore, and keeps the results.

The recording inside the training process belongs to `tfckpt_trainer.training.check`.
"""
