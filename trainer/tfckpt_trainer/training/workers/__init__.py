"""The workers of a run: how they exchange values and agree, and which one a collective lost.

When they do so belongs in `training.loop` and `training.checkpoint`.
"""
