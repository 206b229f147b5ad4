"""Finds, measures and compares the state of objects that a script passes.

Nothing here writes checkpoints or talks to other workers except to compare values:
`training.checkpoint` decides what is stored where.
"""
