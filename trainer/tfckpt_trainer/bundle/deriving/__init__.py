"""Computes the tensors of a new checkpoint from those of others.

Adding the new checkpoint to a run, with its record, belongs in `tfckpt_trainer.catalog`.
"""
