"""Print bytes that are no UTF-8, to both streams, and a last line without a line end."""

import os

os.write(1, b"caf\xe9\n")
os.write(2, b"to stderr\n")
os.write(1, "é😀\n".encode())
os.write(1, b"no end")
