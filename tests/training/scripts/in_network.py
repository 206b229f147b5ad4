"""Runs a script in a network namespace, under a host name: NAMESPACE HOST SCRIPT ARGUMENTS…"""

from __future__ import annotations

import ctypes
import os
import runpy
import socket
import sys
from pathlib import Path

CLONE_NEWUTS = 0x04000000
CLONE_NEWNET = 0x40000000

namespace, host, *words = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
for failed in (libc.setns(descriptor, CLONE_NEWNET), libc.unshare(CLONE_NEWUTS)):
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
socket.sethostname(host)
sys.argv = words
sys.path.insert(0, str(Path(words[0]).parent))
runpy.run_path(words[0], run_name="__main__")
