"""The commands of `tfckpt-tui`, in modules by what they are for."""
