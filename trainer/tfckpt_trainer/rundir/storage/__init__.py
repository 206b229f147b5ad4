"""Files, typed documents, and what differs between local disks, network disks and object storage.

Nothing here knows a run; where its files are belongs in `rundir.paths`.
"""
