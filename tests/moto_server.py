"""Serve moto's S3 and other services of AWS from this process."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def moto(address: str = "127.0.0.1") -> Iterator[str]:
    """Serve moto on this address during the block; yield its URL.

    All servers of a process share one state, which is emptied at the end of each.
    """
    from moto.server import ThreadedMotoServer  # here and not above: collecting the tests stays quick

    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    try:
        yield url
    finally:
        urllib.request.urlopen(f"{url}/moto-api/reset", data=b"").close()
        server.stop()
