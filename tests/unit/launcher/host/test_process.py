"""Test process.py under a seccomp profile that forbids a system call."""

import os

import pytest

from entrypoint.launcher.host.process import scratch


def test_scratch_file_is_on_disk_if_memory_file_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(os, "memfd_create", refuse)
    with scratch("stdin") as file:
        file.write(b"words")
        file.seek(0)
        assert file.read() == b"words" and os.fstat(file.fileno()).st_nlink == 0
