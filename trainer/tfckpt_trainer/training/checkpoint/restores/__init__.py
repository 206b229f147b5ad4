"""Restores: which checkpoint, whether it fits, and the proof that all workers have its values.

Which checkpoints there are belongs in `catalog`.
"""
