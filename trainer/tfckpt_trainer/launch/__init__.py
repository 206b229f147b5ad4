"""Starts workers, supervises them, and restarts them after a failure, without TensorFlow.

Code that runs inside a worker process belongs in `training`.
"""
