"""How the threads of a process wait for each other.

Torch's threads wait in a loop that keeps their core busy. On a machine that is busy with other work one of them is
often not running while the others wait for it like this, and a network of small layers then trains up to ten times as
slowly with two threads as with one. Threads that sleep while they wait lose a little on an idle machine and a factor of
two or three on a busy one. OpenMP reads how to wait when it is loaded, so this comes before torch.
"""

from __future__ import annotations

import os
import sys

POLICY = "OMP_WAIT_POLICY"


def sleep_while_waiting() -> None:
    """Unless torch is there already, or the user has said how to wait."""
    if "torch" not in sys.modules:
        os.environ.setdefault(POLICY, "PASSIVE")
