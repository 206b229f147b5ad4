"""Which checkpoints there are and what state they are in; retention, prune and undo."""
