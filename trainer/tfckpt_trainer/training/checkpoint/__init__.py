"""Saves and restores: what a checkpoint holds, and how the workers write and read it together.

`training.loop` decides when to save or restore.
"""
