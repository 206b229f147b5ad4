"""Saves and restores: what is in a checkpoint, how workers write it together, and back.

When to save or restore is decided in `training.loop`.
"""
