"""Analyses of tensors: their roles, statistics, differences, NaN and infinite values.

Reading the format belongs in `bundle`; verification of checkpoints in `catalog.verification`.
"""
