"""Which checkpoints there are, their states, and what is wrong: diagnostics, alerts of the run.

Reads only. What changes files belongs in `catalog.retention`.
"""
