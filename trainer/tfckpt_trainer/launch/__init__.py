"""Starts workers, supervises them, and restarts them after a failure, without TensorFlow.

Loose are what a command begins with, `launcher`, `preflight` and `export`, and the options of a
launch. Code that runs inside a worker process belongs in `training`.
"""
