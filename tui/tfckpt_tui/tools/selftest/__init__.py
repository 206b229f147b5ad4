"""Tests saves, restores and restarts on this machine, and measures what they cost.

The training itself belongs to `tfckpt_trainer.tools.selftest`.
"""
