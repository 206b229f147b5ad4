"""What depends on where a run directory is stored: on a local or on a network disk.

Paths and formats of files belong in `rundir`.
"""
