"""Starts the workers of a run on this machine, supervises, restarts and stops them."""
