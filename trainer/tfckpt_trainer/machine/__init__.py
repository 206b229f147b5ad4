"""What the system says of this user and process: permissions, own directories, priority.

Files of a run belong in `rundir`, other hosts in `launch` and `cluster`.
"""
