"""Retention rules, prune, trash, undo and pins: everything that moves or deletes checkpoints.

Finding checkpoints belongs in `catalog.scan`.
"""
