"""Run pip in the user's code folder, without taking a file there, such as pip.py, for one of Python's.

`python -m pip` searches the working directory first. By path, it would search this file's folder first.
"""

import os
import sys

LEFT_OUT = {os.path.realpath("."), os.path.realpath(f"{__file__}/..")}
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) not in LEFT_OUT]

import runpy  # noqa: E402  (Python's own, now)

runpy.run_module("pip", run_name="__main__", alter_sys=True)
