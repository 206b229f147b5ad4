"""Parameter servers that no launcher started end with their chief."""

from __future__ import annotations

import socket
import threading

from tfckpt_trainer.cluster import chief
from tfckpt_trainer.cluster.chief import wait_for_end_of_chief
from waiting import wait_until


def test_a_process_that_serves_ends_with_the_chief_and_not_before_it_listens(monkeypatch):
    monkeypatch.setattr(chief, "LOOK_SECONDS", 0.05)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        waiting = threading.Thread(target=wait_for_end_of_chief, args=(place,), daemon=True)
        waiting.start()
        # It is bound, but refuses: TensorFlow takes seconds to start.
        waiting.join(0.2)
        assert waiting.is_alive()
        listening.listen()
        listening.accept()[0].close()
        assert waiting.is_alive()
    wait_until(lambda: not waiting.is_alive(), 10, "the end of the chief")
