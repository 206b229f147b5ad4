"""Commands that launch, follow and steer a run, or list runs.

Commands about its checkpoints belong in `cli.checkpoints`.
"""
