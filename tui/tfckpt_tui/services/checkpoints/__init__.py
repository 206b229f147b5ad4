"""Finds, inspects, compares and verifies checkpoints, and files of other formats.

What makes new ones belongs in `tools.tensors`.
"""
