"""What a script asks of whoever has started it, on its output; it goes on once there is a line on its input."""

import sys


def ask(what: str) -> None:
    print(what, flush=True)
    assert sys.stdin.readline(), f"{what} has failed"


def restart() -> None:
    """The node is killed and started again."""
    ask("restart")


def move() -> None:
    """Everything that one node of two has goes to the other one."""
    ask("move")


def patiently(action, seconds=20):
    """Tries again while connections break."""
    import time

    until = time.monotonic() + seconds
    while True:
        try:
            return action()
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
