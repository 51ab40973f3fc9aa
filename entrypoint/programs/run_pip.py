"""Runs pip in a folder of the user's code, where a file of theirs called pip.py, or like one of Python's, is not taken.

`python -m pip` looks into the working directory first. By path, the folder of this file would come first.
"""

import os
import sys

LEFT_OUT = {os.path.realpath("."), os.path.realpath(f"{__file__}/..")}
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) not in LEFT_OUT]

import runpy  # noqa: E402  (from Python, now)

runpy.run_module("pip", run_name="__main__", alter_sys=True)
