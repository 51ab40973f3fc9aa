"""Reduce file systems of images and pack them in pieces, for a machine that reaches no registry.

FOLDER then has piece-000 and so on, their unpacker (first.tar, on_gpu.sh), and checksums. The pieces contain
roots/NAME, a file system, roots/NAME.env, its variables, roots/order, their names, and ring/: the cases, examples,
Horovod's tests.

CUDA's compilers link *fat binaries* into a library. Each has a header (magic, version, its own size, the size of what
follows) and entries: the same kernels as a program (SASS) for some generations of GPUs, and as PTX or other code that
the driver compiles. From each fat binary the driver takes the program for its GPU, else one that the GPU can run, else
it compiles. Unused parts are overwritten with zeros: the layout stays, and zeros compress well.
"""

import argparse
import json
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
WHOLE = ("libcufft",)  # by their names' beginning. Without kernels that were thought to be others', cuFFT crashed
LEAST = 1_000_000  # bytes: smaller files are neither stripped nor looked at
NEEDED = ("pytest", "parameterized", "mock")  # by Horovod's tests; images have none of them
LARGEST = 47 * 2**20  # bytes of a piece: in base64, or with a checkout beside it, below 64 MiB
CHECKSUMS = "SHA256SUMS"  # as sha256sum writes and reads it
ZSTD = ("zstd", "-q", "-9", "--long=27", "-T0", "-c")
MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # of version 1, with a header of 16 bytes
PROGRAM = 2  # the kind of an entry; 1 is PTX, others are code in other stages
KINDS = (1, PROGRAM, 4, 8, 16)
LEAST_HEADER, LARGEST_HEADER = 32, 4096  # bytes of an entry's: what is outside is no entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="where the pieces go; one that is not in the repository")
    parser.add_argument("--image", action="append", required=True, metavar="NAME=IMAGE", help="may be repeated")
    parser.add_argument("--generation", type=int, default=90, help="of the GPU; 90 is an H100's (sm_90)")


def main(args: argparse.Namespace) -> int:
    """Pack the requested images."""
    images = [_named(each) for each in args.image]
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.folder.resolve().parent) as scratch:
        for name, image in images:
            export(image, Path(scratch, "roots", name))
        Path(scratch, "roots/order").write_text("".join(f"{name}\n" for name, _ in images))
        add_ring(Path(scratch, "ring"))
        pack(Path(scratch), args.folder, args.generation)
    return 0


def pack(work: Path, folder: Path, generation: int) -> None:
    """Reduce the file systems of WORK/roots and pack them with WORK/ring into pieces; print the sizes."""
    for path, size, gone in stripped(work / "roots", generation):
        print(f"{path.relative_to(work)}: kernels {size / 1e6:.0f} MB, overwritten {gone / 1e6:.0f}", flush=True)
    link_equal(work / "roots")
    add_first(folder)
    with (
        subprocess.Popen(["tar", "-C", str(work), "-c", "roots", "ring"], stdout=subprocess.PIPE) as tar,
        subprocess.Popen(ZSTD, stdin=tar.stdout, stdout=subprocess.PIPE) as zstd,
    ):
        assert tar.stdout and zstd.stdout
        tar.stdout.close()
        pieces = write_pieces(zstd.stdout, folder)
    for each in (tar, zstd):
        if each.returncode:
            raise ValueError(f"{each.args} ended with {each.returncode}; its reason is above")
    size = sum(piece.stat().st_size for piece in pieces)
    print(f"{len(pieces)} pieces, {size / 1e9:.2f} GB, in {folder}")


def export(image: str, root: Path) -> None:
    """Write an image's file system to `root`, and its variables beside it."""
    said = subprocess.run(["docker", "image", "inspect", image], capture_output=True, text=True)
    if said.returncode:
        raise ValueError(f"found no image {image} in Docker; tests/gpu/prepare.sh builds all")
    variables = json.loads(said.stdout)[0]["Config"]["Env"]
    root.mkdir(parents=True)
    root.with_name(f"{root.name}.env").write_text("".join(f"{each}\n" for each in variables))
    create = subprocess.run(["docker", "create", image], check=True, capture_output=True, text=True)
    container = create.stdout.strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as exported:
            subprocess.run(["tar", "-x", "-C", str(root)], stdin=exported.stdout, check=True)
        if exported.returncode:
            raise ValueError(f"docker export of {image} failed; its reason is above")
    finally:
        subprocess.run(["docker", "rm", container], check=True, stdout=subprocess.DEVNULL)


def stripped(root: Path, generation: int) -> Iterator[tuple[Path, int, int]]:
    """Strip libraries, except those that must stay unchanged; yield each with its bytes of kernels and of zeros."""
    for path in large(root):
        if ".so" not in path.name or path.name.startswith(WHOLE):
            continue
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            if data[:4] == b"\x7fELF":
                size, gone = strip(data, generation)
                if size:
                    yield path, size, gone


class Entry(NamedTuple):
    """One entry of a fat binary. `generation`: 90 for sm_90. `start` and `end`: of its code, without its header."""

    kind: int
    generation: int
    start: int
    end: int

    def runs_on(self, generation: int) -> bool:
        """Return whether a GPU can run the entry: a program of its major version, or code to compile, and not newer."""
        same_major = self.generation // 10 == generation // 10
        return self.generation <= generation and (self.kind != PROGRAM or same_major)


def fat_binaries(data: Any) -> Iterator[list[Entry]]:
    """Yield the entries of each fat binary in the bytes of a library (anything with `find` that struct reads)."""
    at = 0
    while (at := data.find(MAGIC, at)) >= 0:
        end = _end(data, at)
        if end is None:  # the same bytes by chance
            at += 4
            continue
        if found := list(_entries(data, at + len(MAGIC) + 8, end)):
            yield found
        at = end


def unused(entries: list[Entry], generation: int) -> list[Entry]:
    """Return the entries of a fat binary that a GPU of this generation never runs."""
    exact = [entry for entry in entries if entry.kind == PROGRAM and entry.generation == generation]
    return [entry for entry in entries if (entry not in exact if exact else not entry.runs_on(generation))]


def strip(data: Any, generation: int) -> tuple[int, int]:
    """Overwrite entries that a GPU of this generation never runs; return (bytes of all kernels, bytes overwritten)."""
    size = gone = 0
    for entries in fat_binaries(data):
        size += sum(entry.end - entry.start for entry in entries)
        for entry in unused(entries, generation):
            data[entry.start : entry.end] = bytes(entry.end - entry.start)
            gone += entry.end - entry.start
    return size, gone


def _end(data: Any, at: int) -> int | None:
    if at + len(MAGIC) + 8 > len(data):
        return None
    (size,) = struct.unpack_from("<Q", data, at + len(MAGIC))
    end = at + len(MAGIC) + 8 + size
    return end if end <= len(data) else None


def _entries(data: Any, at: int, end: int) -> Iterator[Entry]:
    while at + LEAST_HEADER <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        (generation,) = struct.unpack_from("<I", data, at + 28)
        start = at + header
        if kind not in KINDS or not LEAST_HEADER <= header <= LARGEST_HEADER or start + size > end:
            return
        yield Entry(kind, generation, start, start + size)
        at = start + size


def link_equal(roots: Path) -> None:
    """Replace equal files of several images by hard links to one file."""
    subprocess.run(["hardlink", "--ignore-time", f"--minimum-size={LEAST}", str(roots)], check=True)


def large(folder: Path) -> list[Path]:
    """Return the large files below a folder, without links."""
    found = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
    return sorted(each for each in found if each.is_file() and not each.is_symlink() and each.stat().st_size >= LEAST)


def add_ring(ring: Path) -> None:
    """Copy files for the cases beside the images, laid out as in a checkout: ring/gpu is this folder."""
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE, ring / "gpu", ignore=without)
    shutil.copytree(CHECKOUT / "examples", ring / "examples", ignore=without)
    horovod = os.environ.get("HOROVOD_SOURCES")
    if not horovod:
        print("HOROVOD_SOURCES names no checkout of Horovod v0.28.1: its own tests are left out", flush=True)
        return
    shutil.copytree(Path(horovod, "test"), ring / "horovod/test", ignore=without)
    # Python alone, so that all Pythons of the images take them.
    pip = ("-m", "pip", "install", "-q", "--target", str(ring / "packages"), "--python-version", "3.10")
    subprocess.run([sys.executable, *pip, "--only-binary", ":all:", *NEEDED], check=True)


def add_first(folder: Path) -> None:
    """Add the unpacker beside the pieces: the script, and zstd with its libraries, which the machine may lack."""
    shutil.copy2(HERE / "on_gpu.sh", folder)
    zstd = shutil.which("zstd")
    if not zstd:
        raise ValueError("found no command zstd; install it (on Debian: apt-get install zstd)")
    linked = subprocess.run(["ldd", zstd], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"(/\S+\.so\S*) \(0x", linked)
    with tempfile.TemporaryDirectory() as first:
        for each in (zstd, *libraries):
            shutil.copy2(each, first)
        loader = next(Path(each) for each in libraries if Path(each).name.startswith("ld-"))
        Path(first, loader.name).rename(Path(first, "ld.so"))
        subprocess.run(["tar", "-cf", str(folder / "first.tar"), "-C", first, "."], check=True)


def write_pieces(stream: BinaryIO, folder: Path, largest: int = LARGEST) -> list[Path]:
    """Write the stream into `folder` as piece-000, piece-001 and so on; remove older pieces.

    Joined by name, they are the stream. The checksums include the other files of the folder.
    """
    for old in [*folder.glob("piece-*"), *folder.glob(CHECKSUMS)]:
        old.unlink()
    form = ("--numeric-suffixes", "--suffix-length=3", f"--bytes={largest}")
    subprocess.run(["split", *form, "-", str(folder / "piece-")], stdin=stream, check=True)
    files = sorted(each.name for each in folder.iterdir() if each.is_file())
    sums = subprocess.run(["sha256sum", *files], cwd=folder, stdout=subprocess.PIPE, check=True).stdout
    (folder / CHECKSUMS).write_bytes(sums)
    return sorted(folder.glob("piece-*"))


def _named(words: str) -> tuple[str, str]:
    name, equals, what = words.partition("=")
    if not (re.fullmatch(r"[\w.-]+", name) and equals and what):
        raise ValueError(f"found {words!r}; wanted NAME=IMAGE")
    return name, what
