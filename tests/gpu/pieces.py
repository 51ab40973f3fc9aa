"""Split a stream into pieces with checksums, for a machine that takes only files of a limited size."""

import hashlib
from pathlib import Path
from typing import BinaryIO

LARGEST = 47 * 2**20  # bytes: in base64, or with a checkout beside it, below 64 MiB
CHECKSUMS = "SHA256SUMS"  # as sha256sum writes and reads it
BLOCK = 2**20


def write_pieces(stream: BinaryIO, folder: Path, largest: int = LARGEST) -> list[Path]:
    """Write the stream into `folder` as piece-000, piece-001 and so on; what is there of an older one goes.

    In the order of their names they are the stream. Files of the folder that are no pieces are in the checksums, too.
    """
    for old in folder.glob("piece-*"):
        old.unlink()
    pieces = list[Path]()
    block = stream.read(min(BLOCK, largest))
    while block:
        piece = folder / f"piece-{len(pieces):03d}"
        left = largest
        with piece.open("wb") as file:
            while block:
                file.write(block)
                left -= len(block)
                block = stream.read(min(BLOCK, left)) if left else b""
        pieces.append(piece)
        block = stream.read(min(BLOCK, largest))
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.name != CHECKSUMS)
    sums = [f"{_digest(each)}  {each.name}\n" for each in files]
    (folder / CHECKSUMS).write_text("".join(sums))
    return pieces


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        found = hashlib.sha256()
        while block := file.read(BLOCK):
            found.update(block)
        return found.hexdigest()
