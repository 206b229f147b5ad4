"""Retention rules, prune, trash, undo and pins: all that moves or deletes checkpoints.

Finding checkpoints belongs in `catalog.scan`.
"""
