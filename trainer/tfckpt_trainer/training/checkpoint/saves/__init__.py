"""Saves: how each is done, and how the workers write and verify it together.

When a run saves is decided in `training.loop`; what one holds is in `training.checkpoint.state`.
"""
