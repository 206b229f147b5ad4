"""Hosts that have nothing in common but the file system and a network that can be cut."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack

SUBNET = "10.78.0"


class SeparateHosts:
    """Network namespaces, each with a cable to a switch; a context manager.

    The switch is a namespace too, so nothing outside of these namespaces changes.

    Attributes:
        namespaces: The namespace of each host.
        addresses: The address of each host.
    """

    def __init__(self, count: int) -> None:
        prefix = f"tfckpt{os.getpid()}"
        self._switch = f"{prefix}s"
        self.namespaces = [f"{prefix}h{index}" for index in range(count)]
        self.addresses = [f"{SUBNET}.{index + 1}" for index in range(count)]
        self._stack = ExitStack()

    def __enter__(self) -> SeparateHosts:
        with ExitStack() as stack:
            for name in (self._switch, *self.namespaces):
                _ip("netns", "add", name)
                stack.callback(_ip, "netns", "del", name)
            _ip("-n", self._switch, "link", "add", "name", "hub", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "dev", "hub", "up")
            for index, name in enumerate(self.namespaces):
                cable = ["type", "veth", "peer", "name", f"port{index}", "netns", self._switch]
                _ip("-n", name, "link", "add", "name", "eth0", *cable)
                _ip("-n", name, "address", "add", f"{self.addresses[index]}/24", "dev", "eth0")
                for device in ("lo", "eth0"):
                    _ip("-n", name, "link", "set", "dev", device, "up")
                _ip("-n", self._switch, "link", "set", "dev", f"port{index}", "up")
                self.heal(index)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def cut(self, index: int) -> None:
        """Makes the switch drop what comes from a host and goes to it."""
        _ip("-n", self._switch, "link", "set", "dev", f"port{index}", "nomaster")

    def heal(self, index: int) -> None:
        """Connects a host to the switch again."""
        _ip("-n", self._switch, "link", "set", "dev", f"port{index}", "master", "hub")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
