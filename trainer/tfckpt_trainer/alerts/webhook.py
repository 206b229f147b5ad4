"""A receiver that is an address on the web: HTTPS POST, with a time limit and retries.

Redirects are not followed: the next address could be one that the user did not name.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from tfckpt_trainer.alerts.alert import AlertMessage, Delivery, json_body, slack_body
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.run_config import WebhookSettings, why_refused
from tfckpt_trainer.words.clean_text import clean

FIRST_PAUSE_SECONDS = 1.0
"""Pause before the first retry; it doubles with each further one."""

LONGEST_PAUSE_SECONDS = 30.0

_PROXY_PORT = 3128

_RETRIED = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Answers that are no fault of the request, besides those of a failing server."""

_BODIES = {"json": json_body, "slack": slack_body}


class _NoAnswerError(Exception):
    """A try without an answer; its text says why, and holds no secret."""


class WebhookReceiver:
    """Posts alerts to an address.

    Attributes:
        name: The host of the address, or the variable that has the address.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        environment: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates a receiver.

        Args:
            settings: The address, and what is sent to it.
            environment: The variables that have the secrets.
            sleep: Waits for a number of seconds.
            jitter: Returns a random number from 0 to 1.
            clock: Returns seconds; never goes back.
        """
        self._settings = settings
        self._environment = environment
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock
        shown = f"${settings.url_env}" if settings.url_env else urlsplit(settings.url).hostname
        self.name = f"webhook {shown}"

    def deliver(self, alert: AlertMessage) -> Delivery:
        """Posts an alert; repeats that if the server fails or does not answer."""
        began = self._clock()
        tries, status = 0, None
        try:
            address, headers = self._address(), self._headers()
            body = _BODIES[self._settings.body](alert)
            while True:
                tries += 1
                try:
                    status = self._post(address, headers, body)
                    result, is_final = _meaning(status)
                except _NoAnswerError as error:
                    status, result, is_final = None, str(error), False
                if is_final or tries > self._settings.retries:
                    break
                self._sleep(self._pause(tries))
        except UsageError as error:
            result = str(error)
        again = f" ({tries} tries)" if tries > 1 else ""
        return Delivery(
            receiver=self.name,
            is_sent=status is not None and 200 <= status < 300,
            result=f"{result}{again}",
            seconds=self._clock() - began,
            http_status=status,
            tries=tries,
        )

    def _pause(self, retry: int) -> float:
        """Returns how long to wait: half of it at random, so that many runs do not come at once."""
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** (retry - 1), LONGEST_PAUSE_SECONDS)
        return longest * (1 + self._jitter()) / 2

    def _address(self) -> SplitResult:
        variable = self._settings.url_env
        url = self._secret(variable) if variable else self._settings.url
        refused = why_refused(url)
        if refused:
            raise UsageError(f"cannot be reached: the address in ${variable} {refused}")
        return urlsplit(url)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "tfckpt-tui"}
        if self._settings.header_env:
            headers[self._settings.header] = self._secret(self._settings.header_env)
        return headers

    def _secret(self, variable: str) -> str:
        """Returns the value of an environment variable; errors never repeat it."""
        value = self._environment.get(variable, "").strip()
        if not value:
            raise UsageError(
                f"cannot be used: the environment of the process that sends has no ${variable}"
            )
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"cannot be used: ${variable} has a character that no header may have")
        return value

    def _post(self, address: SplitResult, headers: Mapping[str, str], body: bytes) -> int:
        """Returns the status of the answer.

        Raises:
            _NoAnswerError: There was none.
        """
        limit = self._settings.timeout_seconds
        connection = _connect(address, limit)
        # The limit of a socket is for each of its reads: a server could answer byte by byte.
        is_late = threading.Event()
        cut = threading.Timer(limit, _shut_down, [connection, is_late])
        cut.daemon = True
        cut.start()
        target = (address.path or "/") + (f"?{address.query}" if address.query else "")
        try:
            connection.connect()
            if is_late.is_set():
                raise TimeoutError
            connection.request("POST", target, body, dict(headers))
            return connection.getresponse().status
        except (OSError, HTTPException, ValueError) as error:
            if is_late.is_set() or isinstance(error, TimeoutError):
                raise _NoAnswerError(f"did not answer within {limit:g} s") from None
            raise _NoAnswerError(f"cannot be reached: {_reason(error)}") from None
        finally:
            cut.cancel()
            connection.close()


def _connect(address: SplitResult, limit: float) -> HTTPConnection:
    """Returns a connection to an address, through the proxy of the environment for https."""
    host = address.hostname or ""
    if address.scheme == "http":
        return HTTPConnection(host, address.port, timeout=limit)
    proxy = "" if proxy_bypass(host) else getproxies().get("https", "")
    if not proxy:
        return HTTPSConnection(host, address.port, timeout=limit)
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    connection = HTTPSConnection(parts.hostname or "", parts.port or _PROXY_PORT, timeout=limit)
    connection.set_tunnel(host, address.port)
    return connection


def _shut_down(connection: HTTPConnection, is_late: threading.Event) -> None:
    """Ends all waiting for the other end of a connection."""
    is_late.set()
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _meaning(status: int) -> tuple[str, bool]:
    """Returns what an answer says, and whether no retry can change it."""
    if 300 <= status < 400:
        return f"redirects (HTTP {status}), which is not followed; use its new address", True
    return f"answered HTTP {status}", not (status in _RETRIED or status >= 500)


def _reason(error: Exception) -> str:
    """Returns why a request failed; what the server wrote is not repeated."""
    if isinstance(error, OSError) and error.strerror:
        return clean(error.strerror)
    return type(error).__name__
