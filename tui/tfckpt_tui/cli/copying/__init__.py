"""The command that copies checkpoints to other places.

Commands that write files of other formats belong in `cli.tensors` or `cli.checkpoints`.
"""
