"""Which checkpoints there are, what state each is in, and diagnostics of the directory.

Reads only. What changes files belongs in `catalog.retention`.
"""
