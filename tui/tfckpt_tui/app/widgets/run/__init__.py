"""Header, progress, workers, logs and events of a run.

Rows about checkpoints belong in `app.widgets.checkpoints`.
"""
