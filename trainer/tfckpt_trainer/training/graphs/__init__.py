"""Traced graphs of TensorFlow: which operations draw random numbers, and what they change.

Nothing here knows a run. What the facts mean for a run belongs in `check.traced_steps`.
"""
