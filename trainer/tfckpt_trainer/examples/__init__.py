"""Runnable training scripts, one per way to use the library.

Only the self-test imports one, for its model. Checks of the library belong in `tests`.
"""
