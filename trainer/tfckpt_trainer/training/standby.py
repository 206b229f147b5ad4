"""A process that has imported TensorFlow and waits, to become workers in an instant.

Importing takes seconds, and a fork of a process that has imported and done nothing else takes
milliseconds. It is `python -m tfckpt_trainer.training.standby SOCKET`, and `launch.standby`
speaks to it. After any operation of TensorFlow a fork would hang, so nothing but the import
happens here.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import Any

import numpy as np

import tfckpt_trainer.training  # noqa: F401  it is the import that takes the time

Order = dict[str, Any]


def main() -> None:
    """Forks a worker for each order; returns in the worker, which then runs its script."""
    line = socket.socket(fileno=int(sys.argv[1]))
    order = wait_for_order(line)
    if order is None:
        return
    line.close()
    become(order)


def wait_for_order(line: socket.socket) -> Order | None:
    """Serves orders; returns one in each worker that it forks, and None once nobody orders."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    line.sendall(b'{"ready": true}\n')
    pending = b""
    while True:
        readable, _, _ = select.select([line.fileno(), woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
            tell_of_the_dead(line)
        if line.fileno() in readable:
            data = line.recv(1 << 16)
            if not data:
                return None
            *orders, pending = (pending + data).split(b"\n")
            for text in orders:
                child = fork_leader()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    os.close(woken)
                    os.close(wake)
                    return dict(json.loads(text))
                say(line, {"started": child})


def fork_leader() -> int:
    """Forks; the child leads a session of its own before the parent knows its number."""
    led, leads = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(led)
    os.close(leads)
    if child != 0:
        os.read(led, 1)
        os.close(led)
    return child


def tell_of_the_dead(line: socket.socket) -> None:
    """Tells how each worker ended that did since the last time."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        say(line, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def say(line: socket.socket, message: Order) -> None:
    """Sends one message; whoever listened may be gone, and the workers live on."""
    try:
        line.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return


def become(order: Order) -> None:
    """Runs the script of an order in this process, as the interpreter would have."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(order["log"], os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    # Python seeds its own generator anew in a fork; NumPy's would be the same in all workers.
    np.random.seed()
    sys.argv = list(order["arguments"])
    if order["module"]:
        sys.path.insert(0, order["directory"])
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
