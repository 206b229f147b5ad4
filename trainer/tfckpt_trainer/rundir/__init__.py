"""The run directory: its paths, records, command queue and heartbeats, for all processes.

Only file access and what follows from it belongs here. Checkpoint formats belong in `bundle`, and
decisions about checkpoints in `catalog`.
"""
