"""Runnable training scripts, one per way to use the library.

The library never imports them. Checks of the library belong in `tests`.
"""
