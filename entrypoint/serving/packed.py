"""Unpack compressed bodies, recognised by Content-Encoding, or by their beginning if a client sends no encoding."""

import zlib

from entrypoint.serving.model import Refused

_GZIP = b"\x1f\x8b"  # neither JSON nor CSV begins so
_PACKED = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Return the unpacked body. Raise Refused if that fails, or if the result is larger than `most` bytes."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        encoding = "gzip" if body.startswith(_GZIP) else ""
    if not encoding:
        return body
    if encoding not in _PACKED:
        raise Refused(f"Content-Encoding is {encoding[:100]!r}; wanted gzip, deflate or none", 415)
    parts, size = [], 0
    try:
        while body:  # gzip may have several members
            stream = zlib.decompressobj(_PACKED[encoding])
            parts.append(stream.decompress(body, most + 1 - size))
            size += len(parts[-1])
            if size > most:
                raise Refused(f"the body is larger than {most >> 20} MB when it is expanded", 413)
            if not stream.eof:
                raise Refused(f"the body is {encoding} and ends too early")
            body = stream.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise Refused(f"the body cannot be expanded as {encoding}: {error}") from None
    return b"".join(parts)
