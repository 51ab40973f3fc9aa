"""Run a proxy that records its requests, and answers all with `answer` or never."""

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def proxy(address: str = "127.0.0.1", answer: bytes = b"") -> Iterator[tuple[str, list[str]]]:
    """Yield (the proxy's URL, the first line of each request so far). If `answer` is empty, clients wait for ever."""
    asked: list[str] = []
    with socket.create_server((address, 0)) as server, contextlib.ExitStack() as held:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = held.enter_context(server.accept()[0])
                    connection.settimeout(10)
                    with contextlib.suppress(OSError):
                        asked.append(connection.recv(1 << 16).partition(b"\r\n")[0].decode("latin-1"))
                    if answer:
                        with contextlib.suppress(OSError):
                            connection.sendall(answer)
                        connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://{address}:{server.getsockname()[1]}", asked
        server.shutdown(socket.SHUT_RDWR)  # which ends accept
        thread.join(20)
