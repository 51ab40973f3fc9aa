"""`unused_port()`: for a server that has to be told its port before it starts."""

import contextlib

from entrypoint.simulate.ports import LOWEST, reserved

_held = contextlib.ExitStack()


def unused_port() -> int:
    """One that no other test and no job gets until this process ends, nor a connection for its own end.

    The system gives its high ports to connections, too: one that it found free can be taken when a server begins.
    """
    return LOWEST + _held.enter_context(reserved([LOWEST]))
