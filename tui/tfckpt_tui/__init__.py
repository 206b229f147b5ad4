"""The terminal app and the same actions as commands for scripts."""
