"""Commands that show, compare, verify, copy, export and prune checkpoints.

Commands that make new checkpoints or take tensors out of them belong in `tools.tensors`.
"""
