"""Widgets and drawing helpers that know nothing of runs.

Widgets for checkpoints and workers belong in the folders beside this one.
"""
