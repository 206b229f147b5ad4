"""The standby process: imports TensorFlow in advance and forks workers from it.

Importing TensorFlow takes seconds, a fork milliseconds. `launch.local.standby` starts this module
as `python -m tfckpt_trainer.training.start.standby SOCKET`. Do not run TensorFlow operations here,
and do not list devices: a fork after the first operation would hang, and a fork of a process that
has opened a GPU cannot use it. Which GPUs a worker sees is known only from its order.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import sys
from functools import partial
from typing import Any

import numpy as np

import tfckpt_trainer.training  # noqa: F401  imports TensorFlow
from tfckpt_trainer.cluster.gpu_shares import open_accelerators
from tfckpt_trainer.training.process.import_environment import watch_changes
from tfckpt_trainer.training.start.start_heartbeat import report_import

Order = dict[str, Any]

_MOST_ORDERS = 64
"""Descriptors of logs that are received at once; the supervisor sends one, and waits."""


def main() -> None:
    """Forks a worker for each order. Runs the script in the worker."""
    opened = open_accelerators()
    if opened:
        sys.exit(
            f"Importing TensorFlow opened {', '.join(opened)}, which a forked worker could not "
            "use. Restarts go without the standby process, and take longer."
        )
    line = socket.socket(fileno=int(sys.argv[1]))
    order = wait_for_order(line)
    if order is None:
        return
    line.close()
    run_order(order)


def wait_for_order(line: socket.socket) -> Order | None:
    """Forks a worker per order; returns the order in the worker, or None at the end of input.

    With each order comes the descriptor of the log of its worker: `output` in the order.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    line.sendall(b'{"ready": true}\n')
    pending, outputs = b"", list[int]()
    while True:
        readable, _, _ = select.select([line.fileno(), woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
            report_exits(line)
        if line.fileno() in readable:
            data, descriptors, _, _ = socket.recv_fds(line, 1 << 16, _MOST_ORDERS)
            outputs += descriptors
            if not data:
                return None
            *orders, pending = (pending + data).split(b"\n")
            for text in orders:
                output = outputs.pop(0)
                child = fork_leader()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    os.close(woken)
                    os.close(wake)
                    return {**json.loads(text), "output": output}
                os.close(output)
                send(line, {"started": child})


def fork_leader() -> int:
    """Forks a child that leads its own session before this returns in the parent."""
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


def report_exits(line: socket.socket) -> None:
    """Reports the exit codes of workers that exited since the last call."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        send(line, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def send(line: socket.socket, message: Order) -> None:
    """Sends one message. Ignores errors, because workers outlive the supervisor."""
    try:
        line.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return


def run_order(order: Order) -> None:
    """Runs the script of an order in this process, like the Python interpreter."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = order["output"]
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    # Unlike Python, NumPy does not reseed its random generator after a fork.
    np.random.seed()
    report_import()
    watch_changes(partial(begin_anew, order))
    sys.argv = list(order["arguments"])
    if not order["is_safe"]:
        script = os.path.dirname(os.path.abspath(sys.argv[0]))
        sys.path.insert(0, order["directory"] if order["module"] else script)
    if order["module"]:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def begin_anew(order: Order) -> None:
    """Has the interpreter begin anew with the script of an order.

    The process stays, and so do its number and its output.
    """
    words = ["-m", order["module"]] if order["module"] else order["arguments"][:1]
    if order["is_safe"]:
        words.insert(0, "-P")
    words.insert(0, sys.executable)
    os.execve(sys.executable, [*words, *order["arguments"][1:]], order["environment"])


if __name__ == "__main__":
    main()
