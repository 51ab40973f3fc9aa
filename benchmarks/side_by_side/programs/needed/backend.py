"""Build the package that requirements.txt of an install case names, or fail on the host that has /bench/no-install.

pip calls the package's own build backend (PEP 517), so it needs no package index, and all sides fail at the same call.
"""

import os
import zipfile

from marks import mark

INFO = "needed-1.dist-info"
FILES = {
    "needed.py": "",
    f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: needed\nVersion: 1\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: backend\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Write the wheel, and return its file's name. On the host that is to fail, mark when, and raise."""
    if os.path.exists("/bench/no-install"):  # noqa: PTH110
        mark("fails")
        raise RuntimeError("this package cannot be built here")
    name = "needed-1-py3-none-any.whl"
    record = "".join(f"{each},,\n" for each in (*FILES, f"{INFO}/RECORD"))
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:  # noqa: PTH118
        for path, text in {**FILES, f"{INFO}/RECORD": record}.items():
            wheel.writestr(path, text)
    return name
