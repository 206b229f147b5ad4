"""What the shell completes: names of checkpoints and tensors, and run directories.

The script that a shell loads is printed by `cli.config`.
"""
