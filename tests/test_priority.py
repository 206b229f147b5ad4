"""The priority of work that training must not wait for."""

from __future__ import annotations

import os
import threading

import pytest

from accounts import ALICE, acting_as
from requirements import needs
from tfckpt_trainer.machine.priority import lower_priority


@needs("root")
@pytest.mark.parametrize(("before", "after"), [(0, 10), (15, 15)])
def test_a_thread_of_a_user_has_a_lower_priority_and_never_a_higher(before, after):
    found = []

    def work():
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, before)
        with acting_as(ALICE):
            lower_priority()
        found.append(os.getpriority(os.PRIO_PROCESS, thread))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [after]
