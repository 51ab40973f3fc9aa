"""`entrypoint top` says what is wrong with the address that it was given."""

import socket
import threading

import pytest

from entrypoint.errors import ConfigError
from entrypoint.live.top import source


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\n",  # no HTTP, such as a forwarded port of another service
        b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n<html></",
        b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n["job"]',
        b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}',
    ],
)
def test_what_answers_is_no_job(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1000)
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConfigError, match="nobody shows a job at http://127"):
            source(f"http://127.0.0.1:{server.getsockname()[1]}", {})()
        thread.join()


def test_an_address_that_is_none() -> None:
    with pytest.raises(ConfigError, match="nobody shows a job at http://localhost:abc"):
        source("http://localhost:abc", {})()
