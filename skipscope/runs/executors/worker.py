"""`python -m skipscope.runs.executors.worker DESCRIPTOR`: a process that does one task after another for the one that
started it.

A message is its length in eight bytes and then the bytes; tasks come on standard input and answers go to a descriptor
of their own, so that whatever is printed cannot be taken for one. When the other side is gone, for whatever reason,
this process ends at once, in the middle of a task too.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

LENGTH = 8  # bytes
LONGEST = 1 << 40  # bytes of a message; a greater length is none: something else was written there
AT_ONCE = 1 << 24  # bytes that are read at a time, so that a wrong length takes no memory


def write_message(stream: BinaryIO, content: bytes) -> None:
    stream.write(len(content).to_bytes(LENGTH, "big"))
    stream.write(content)
    stream.flush()


def read_message(stream: BinaryIO) -> bytes | None:
    """None at the end of the stream, in the middle of a message too, and where there is no message."""
    length = stream.read(LENGTH)
    size = int.from_bytes(length, "big")
    if len(length) < LENGTH or size > LONGEST:
        return None
    content = bytearray()
    while len(content) < size:
        part = stream.read(min(size - len(content), AT_ONCE))
        if not part:
            return None
        content += part
    return bytes(content)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends its workers
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    answers = os.fdopen(descriptor, "wb")
    sys.stdout = sys.stderr
    coming = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  (what a task reads from standard input is no other task)
        os.dup2(nothing.fileno(), 0)
    tasks: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_receive, args=(coming, tasks), daemon=True).start()
    from skipscope.runs.executors.task import reply_to

    while True:
        write_message(answers, reply_to(tasks.get()))


def _receive(coming: BinaryIO, tasks: queue.Queue[bytes]) -> None:
    while (content := read_message(coming)) is not None:
        tasks.put(content)
    os._exit(0)


if __name__ == "__main__":
    main()
