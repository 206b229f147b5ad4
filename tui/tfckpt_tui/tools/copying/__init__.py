"""Copies checkpoints to another directory, on this machine or on another host.

Commands for the other host are built and run here, and nowhere else. Copies within a run, such as
averages, belong in `tools.tensors`.
"""
