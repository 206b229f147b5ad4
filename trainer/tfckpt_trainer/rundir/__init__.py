"""The run directory: the one contract between trainer, supervisor, terminal app and scripts."""
