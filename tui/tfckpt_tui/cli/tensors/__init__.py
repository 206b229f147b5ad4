"""Commands that take tensors out of checkpoints or make new checkpoints of them.

Commands that only show what a checkpoint holds belong in `cli.checkpoints`.
"""
