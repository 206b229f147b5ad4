"""Heartbeats of workers and supervisors, and what follows: which processes live, wait or are lost.

The types of the status files belong in `rundir.records`.
"""
