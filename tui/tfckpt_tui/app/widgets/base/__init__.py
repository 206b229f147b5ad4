"""Base widgets and drawing helpers.

Widgets for checkpoints and workers belong in the folders beside this one.
"""
