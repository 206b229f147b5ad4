"""Lists and trees of checkpoints, variables and the trash.

Rows about workers and the run belong in `app.widgets.run`.
"""
