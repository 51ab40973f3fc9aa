"""Test the loop's inbox, from which the loop takes events and questions of threads one after another."""

import queue
import subprocess
import sys
import threading

import pytest

from entrypoint.launcher.host.inbox import Inbox
from entrypoint.launcher.policy.events import Due, LinkEnded, Report, Reported, Signalled

REPORTED = Reported(report=Report(host="algo-2"))
CLOSED = LinkEnded(host="algo-3")
STOP = Signalled(number=15)


def test_waiting_reports_and_ends_of_links_are_taken_together():
    inbox = Inbox()
    for event in (STOP, REPORTED, CLOSED, REPORTED, STOP, REPORTED):
        inbox.put(event)
    taken = [inbox.take(0.0) for _ in range(5)]
    assert taken == [(STOP,), (REPORTED, CLOSED, REPORTED), (STOP,), (REPORTED,), (Due(),)]


def test_thread_that_reads_the_inbox_answers_questions():
    inbox, heard = Inbox(), queue.SimpleQueue()

    def ask() -> None:
        heard.put(inbox.ask(lambda: {"thread": threading.current_thread().name}))

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():
        inbox.take(0.01)
    assert heard.get(timeout=60) == {"thread": threading.main_thread().name}


def test_unanswered_question_raises_after_its_patience():
    with pytest.raises(queue.Empty):
        Inbox().ask(dict, patience=0.01)


SCRIPT = """
import os, signal, threading, time
from entrypoint.launcher.host.inbox import ChildrenChanged, Inbox

inbox = Inbox()
inbox.catch_signals()
inbox.end_waits_by_signals()
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()  # whom the kernel takes in place of us
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
if os.fork() == 0:
    time.sleep(0.5)
    os._exit(0)
while not any(isinstance(event, ChildrenChanged) for event in inbox.take(100)):
    pass
os._exit(0)
"""


def test_signal_to_another_thread_wakes_the_loop():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=240)
