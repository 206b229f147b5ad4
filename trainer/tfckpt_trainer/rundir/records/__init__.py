"""The records of the run directory, one module per subject.

Only types belong here. The code that reads and writes them is in `rundir`.
"""
