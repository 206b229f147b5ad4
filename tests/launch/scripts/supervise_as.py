"""Supervises a run as another user, who cannot read the modules of root: they are imported first.

python supervise_as.py USER GROUP RUN
"""

from __future__ import annotations

# Of the standard library, imported where they are needed.
import encodings.ascii  # noqa: F401
import grp  # noqa: F401
import os
import pkgutil
import pwd  # noqa: F401
import shutil  # noqa: F401
import sys
import tempfile  # noqa: F401
from importlib import import_module

import tfckpt_trainer

for room in ("alerts", "launch", "rundir"):
    package = import_module(f"{tfckpt_trainer.__name__}.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(found.name)

from tfckpt_trainer.launch.local.local_supervisor import main  # noqa: E402

user, group = map(int, sys.argv[1:3])
os.umask(0o022)
os.setgroups([group])
os.setresgid(group, group, group)
os.setresuid(user, user, user)
sys.exit(main(sys.argv[3:]))
