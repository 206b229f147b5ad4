"""What came of sending one alert to one receiver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Delivery:
    """What came of sending one alert to one receiver.

    Attributes:
        receiver: The name of the receiver.
        is_sent: Whether the receiver accepted the alert.
        result: How it went, as the end of a sentence that begins with the receiver.
        seconds: How long it took, with all tries.
        http_status: The last answer of a webhook; None if it gave none.
        tries: How often it was tried.
    """

    receiver: str
    is_sent: bool
    result: str
    seconds: float
    http_status: int | None = None
    tries: int = 1
