"""Test what the monitor accepts of the launcher's messages, over a real socket."""

import socket

import pytest

from entrypoint.observe.monitor.monitor import Messages


@pytest.fixture
def pair():
    launcher, monitor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with launcher, monitor:
        yield launcher, Messages(monitor)


def test_lines_of_a_process_come_together_and_before_what_was_sent_later(pair):
    launcher, inbox = pair
    ended = b'["ended",1,"rank 0",0]'
    for message in (b"Lrank 0\0a\n", b"Lrank 1\0x\n", b"Lrank 0\0b\n", ended, b"Urank 1\0" + b"70", b"Lrank 1\0y\n"):
        launcher.send(message)
    assert list(inbox.take()) == [
        (b"L", "rank 0", b"a\nb\n"),
        (b"L", "rank 1", b"x\n"),
        (b"[", "", ended),
        (b"U", "rank 1", b"70"),
        (b"L", "rank 1", b"y\n"),
    ]
    assert not inbox.ended, "it may say more"
    assert list(inbox.take()) == []


def test_the_end_comes_after_all_that_was_sent(pair):
    launcher, inbox = pair
    launcher.send(b"Lrank 0\0last\n")
    launcher.shutdown(socket.SHUT_WR)
    assert list(inbox.take()) == [(b"L", "rank 0", b"last\n")]
    assert inbox.ended
