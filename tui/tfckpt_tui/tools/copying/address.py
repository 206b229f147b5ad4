"""The destination of a copy as users write it: a directory, `host:path` or `ssh://host/path`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.storage.object_storage import refuse_url

_URL = "ssh://"
_HOST = re.compile(r"(?:[\w.+\\-][\w.@+\\-]*@)?(?:[\w][\w.-]*|[0-9A-Fa-f:]+(?:%\w+)?)")
"""Without characters that a shell or ssh would read as more than a name."""

_REMOTE = re.compile(r"(?P<host>[^/\[\]:]+|(?:[^/\[\]@]*@)?\[[^/\[\]]+\]):(?P<path>.*)", re.DOTALL)
_HIGHEST_PORT = 65535


@dataclass(frozen=True)
class HostPath:
    """A directory on another host.

    Attributes:
        host: The host as ssh takes it, with the user if one was named: `ada@backup`.
        path: The path there; relative to the home directory if it does not begin with `/`.
        port: The port of the ssh server; None for the one that ssh is configured to use.
    """

    host: str
    path: str
    port: int | None = None

    def __str__(self) -> str:
        return f"{self.bracketed_host}:{self.path}"

    @property
    def bracketed_host(self) -> str:
        """The host as rsync takes it: an IPv6 address in brackets."""
        user, at, host = self.host.rpartition("@")
        return f"{user}{at}[{host}]" if ":" in host else self.host


def parse_destination(text: str, *, on_host: bool = False) -> Path | HostPath:
    """Returns the directory, on this machine or another, that `text` names.

    As for `scp`, a colon before the first slash ends the name of a host.

    Args:
        text: A directory, `[user@]host:path` or `ssh://[user@]host[:port]/path`.
        on_host: Whether it must be on another host.

    Raises:
        UsageError: It names neither.
    """
    if text.startswith(_URL):
        return _parse_url(text)
    if text.startswith(":"):
        raise UsageError(
            f"{text} begins with a colon: its host is missing. Write host:path; for a local "
            f"directory of this name, write ./{text}."
        )
    match = _REMOTE.fullmatch(text)
    # `gs://bucket` has a colon before the first slash too.
    if match is None or match["path"].startswith("//"):
        if on_host:
            raise UsageError(f"{text} is not a directory on another host; write it as host:path.")
        refuse_url(text, "the destination of a copy")
        if not text:
            raise UsageError("The destination is empty; name a directory or host:path.")
        try:
            return Path(text).expanduser().absolute()
        except RuntimeError:
            raise UsageError(f"{text} names the home directory of an unknown user.") from None
    return HostPath(
        _checked_host(match["host"].replace("[", "").replace("]", ""), text),
        _path(match["path"], text),
    )


def _parse_url(text: str) -> HostPath:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _not_a_host(text) from None
    if port == 0 or (port or 0) > _HIGHEST_PORT or parts.query or parts.fragment:
        raise _not_a_host(text)
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    path = unquote(parts.path)
    # As in git: `ssh://host/~/path` is below the home directory.
    path = path[1:] if path.startswith("/~") else path
    host = host.rstrip(":").replace("[", "").replace("]", "")
    return HostPath(_checked_host(host, text), _path(path, text), port)


def _checked_host(host: str, text: str) -> str:
    if _HOST.fullmatch(host) is None or host.startswith("-"):
        raise _not_a_host(text)
    return host


def _path(path: str, text: str) -> str:
    if "\0" in path or path in {"", "/", "~"}:
        raise UsageError(f"{text} names no directory; add one, such as {text or 'host:'}backup.")
    if path.startswith("~/"):
        return path[2:].lstrip("/") or _path("", text)
    if path.startswith("~"):
        raise UsageError(
            f"{text} names the home directory of a user; write the whole path after the host."
        )
    return path


def _not_a_host(text: str) -> UsageError:
    return UsageError(
        f"{text} does not name a host; write host:path, user@host:path or "
        "ssh://user@host:port/path. For a local directory with a colon, write ./ before it."
    )
