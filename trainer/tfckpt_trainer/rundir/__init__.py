"""The run directory: its paths, records, command queue and heartbeats, for all processes.

Loose are `paths` and what has one file or folder of its own in the run directory. Checkpoint
formats belong in `bundle`, and decisions about checkpoints in `catalog`.
"""
