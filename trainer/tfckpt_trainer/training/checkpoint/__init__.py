"""Saves and restores of a run, together with the state that they are about.

`training.loop` decides when to save or restore.
"""
