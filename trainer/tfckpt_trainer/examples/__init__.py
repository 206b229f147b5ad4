"""Real training scripts, small enough to read: each one documented way to use the library."""
