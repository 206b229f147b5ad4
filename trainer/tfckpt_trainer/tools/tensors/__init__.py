"""Computes the tensors of a new checkpoint from those of others, and adds it to a run.

What a save needs too belongs in `tfckpt_trainer.bundle.writing` or `tfckpt_trainer.catalog`.
"""
