"""Where the program starts: `skipscope`, and `python -m skipscope` where its script is not installed.

The command line takes a moment to import, in which nothing has been done yet: Ctrl-C ends the program at once then, and
when it ends anyway, without a traceback.
"""

import os
import signal

INTERRUPTED = 130


def start() -> None:
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where the shell has it ignored
    if handled:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    from skipscope.cli import main

    try:
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        if handled:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    start()
