"""A training process, whatever it runs: its signals, its exit, its threads and its open runs.

Nothing here knows a checkpoint or the loop. How a process begins belongs in `training.start`.
"""
