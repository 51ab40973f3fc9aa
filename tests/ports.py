"""Provide `unused_port()` for a server that must know its port before it starts."""

import contextlib

from entrypoint.simulate.process_engine import LOWEST, reserved

_held = contextlib.ExitStack()


def unused_port() -> int:
    """Return a port that no other test, job or connection gets until this process ends.

    The system also gives its high ports to connections, which can take a free port before a server starts.
    """
    return LOWEST + _held.enter_context(reserved([LOWEST]))
