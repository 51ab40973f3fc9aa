"""Fill folders of a host, or make them read-only: a small file system, and commands for both."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from entrypoint.simulate import linux

FILLER = ".full"

# Shell commands for the folder {0}. They run where the host's folder is visible, which may be in a container.

# Shrinks a file system in memory to its contents. Size 0 would mean no limit, so an empty one gets a filler. Something
# may be written between the look and the remount, so there are several tries.
FILL = f"""
for try in 1 2 3 4 5 6 7 8 9; do
    used=$(($(df -B1 --output=used {{0}} | tail -n 1)))
    if [ $used = 0 ]; then head -c $(getconf PAGESIZE) /dev/zero >{{0}}/{FILLER} && continue; fi
    mount -o remount,size=$used {{0}} && exit
done
exit 1
"""

# While a file is open for writing, the mount cannot be made read-only, so a read-only mount covers it. That file stays
# open for writing; no other can be opened.
MAKE_READONLY = """
mount -o remount,bind,ro {0} 2>/dev/null || {{ mount --bind {0} {0} && mount -o remount,bind,ro {0}; }}
"""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system in memory over a folder, and copy its contents into the folder at the end."""
    below = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    real = f"/proc/self/fd/{below}"  # the folder below the mount
    linux.mount("tmpfs", folder, "tmpfs", data="mode=755")
    shutil.copytree(real, folder, symlinks=True, dirs_exist_ok=True)
    try:
        yield
    finally:
        try:
            shutil.copytree(folder, real, symlinks=True, dirs_exist_ok=True, ignore=_left_out)
        finally:
            linux.unmount(folder)
            os.close(below)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names that are not copied back: the filler, sockets and pipes."""
    paths = {name: Path(folder) / name for name in names}
    return {n for n, path in paths.items() if n == FILLER or not (path.is_symlink() or path.is_dir() or path.is_file())}
