"""Test view.py, which makes the page's state from records, and serve.py, which limits access to the page."""

import contextlib
import itertools
import json
import threading

import pytest
from werkzeug.test import Client

from entrypoint.launcher.control.pages import is_this_machine
from entrypoint.observe.live.serve import STATE, WATCHED, Looks, application
from entrypoint.observe.live.view import CURVE, LINES, View
from entrypoint.record.lines import WRONG, line_of

ABOUT = {"version": 1, "hosts": ["algo-1", "algo-2"], "coordinator": "algo-1", "mode": "mpi", "cpus": 4}
USED = {"cpu": [1.5, 0.5, 0, 0, 0], "memory": [10, 10, 500], "net": [2000, 100], "disk": [0, 30], "free": 9}


def view(*lines, host: str = "algo-1") -> View:
    made = View()
    note(made, host, ["host", 100.0, ABOUT])
    for line in lines:
        note(made, host, list(line))
    return made


def note(made: View, host: str, line: list) -> None:
    """Pass a line of a record to the view, as the coordinator's monitor does."""
    with contextlib.suppress(*WRONG):
        made.note(host, line_of(line))


def host_of(made: View, name: str = "algo-1") -> dict:
    return next(host for host in made.state(200.0)["hosts"] if host["name"] == name)


def test_loss_curve_keeps_its_ends_within_a_size_limit():
    made = view(*(("metric", 100.0 + at, "rank 0", {"step": float(at), "loss": 9.0 - at / 1000}) for at in range(3000)))
    note(made, "algo-1", ["metric", 4000.0, "rank 0", {"loss": float("nan")}])
    curve = made.state(200.0)["progress"]["curve"]
    points = curve["points"]
    assert curve["name"] == "loss" and 100 < len(points) <= CURVE
    assert points[0][0] < 150 and points[-1][0] > 3000
    gaps = {round(later[0] - at[0], 1) for at, later in itertools.pairwise(points)}
    assert len(gaps) == 1, "the whole course is kept alike"
    assert points == sorted(points) and made.state(200.0)["progress"]["metrics"]["loss"] == "nan"


def test_hosts_are_listed_by_rank_not_by_arrival():
    made = View()
    note(made, "algo-2", ["phase", 101.0, "running"])
    note(made, "algo-1", ["host", 100.0, ABOUT])
    state = made.state(130.0)
    assert [host["name"] for host in state["hosts"]] == ["algo-1", "algo-2"]
    assert (state["mode"], state["coordinator"], state["began"], state["at"]) == ("mpi", "algo-1", 100.0, 130.0)
    assert host_of(made, "algo-2")["phase"] == "running"


def test_separate_training_is_shown_until_hosts_train_together():
    told = {"since": 101.0, "words": "every host trains alone", "advice": "train.py:31 is outside"}
    made = view(("distributed", 120.0, False, told))
    assert made.state(130.0)["apart"] == "every host trains alone: train.py:31 is outside"
    note(made, "algo-1", ["distributed", 125.0, True, {"words": "2 hosts exchange 8 MB a step"}])
    note(made, "algo-2", ["host", 100.0, ABOUT])
    note(made, "algo-2", ["distributed", 126.0, False, told])
    assert made.state(130.0)["apart"] == "", "only the coordinator's record says it"


def test_usage_sample_becomes_rates_and_shares():
    made = view(
        ("process", 101.0, "rank 0", {"pid": 7, "role": "rank"}),
        ("host", 101.0, {"memory_limit": 1000}),
        ("sample", 102.0, 2.0, USED, {"rank 0": {"cpu": 1.0, "memory": 77}}, {}),
    )
    host = host_of(made)
    assert host["cpu"] == 0.25, "2 s of processor time in 2 s on 4 processors"
    assert (host["memory"], host["net"], host["disk"], host["free"]) == ([500, 1000], [1000, 50], [0, 15], 9)
    assert host["history"] == [[102.0, 0.25, 0.5]]
    (process,) = host["processes"]
    assert (process["name"], process["role"], process["cpus"], process["memory"]) == ("rank 0", "rank", 0.5, 77)


def test_progress_by_epochs_shows_share_done_and_time_left():
    told = [
        ("metric", 100.0 + step, "rank 0", {"epoch": 1 + step // 10, "epochs": 4, "epoch_step": step % 10,
                                            "epoch_steps": 10, "step": step, "loss": 0.5})
        for step in range(0, 21)
    ]  # fmt: skip
    progress = view(*told).state(121.0)["progress"]
    assert (progress["host"], progress["process"], progress["done"]) == ("algo-1", "rank 0", 0.5)
    assert progress["left"] == 20.0, "20 of 40 steps took 20 s"
    assert (progress["epoch"], progress["epochs"], progress["metrics"]["loss"]) == (3, 4, 0.5)
    assert host_of(view(*told))["processes"][0]["rate"] == 1.0


def test_progress_needs_a_known_number_of_steps():
    assert view(("metric", 101.0, "script", {"step": 30, "max_steps": 120})).state(200.0)["progress"]["done"] == 0.25
    unknown = view(("metric", 101.0, "script", {"step": 30})).state(200.0)["progress"]
    assert (unknown["done"], unknown["left"]) == (None, None)
    assert view().state(200.0)["progress"]["done"] is None


def test_processes_are_in_order_of_their_numbers():
    told = [("process", 100.0, f"rank {number}", {"role": "rank"}) for number in (10, 9, 8)]
    assert [process["name"] for process in host_of(view(*told))["processes"]] == ["rank 8", "rank 9", "rank 10"]


def test_process_without_progress_has_no_rate():
    steps = [("metric", 100.0 + n, "script", {"step": n}) for n in range(9)]
    told = [*steps, ("still", 400.0, {"script": [290.0, 0.0]})]
    assert [host_of(view(*lines))["processes"][0]["rate"] for lines in (steps, told)] == [1.0, None]


def test_restarted_process_has_no_negative_rate():
    told = [("metric", 100.0 + n, "script", {"step": step, "max_steps": 100}) for n, step in enumerate([80, 90, 0, 2])]
    (process,) = host_of(view(*told))["processes"]
    assert process["rate"] == 2.0
    assert view(*told).state(200.0)["progress"]["left"] == pytest.approx(49.0)


def test_progress_of_the_job_is_that_of_the_chief():
    made = view(("metric", 101.0, "ps/0", {"step": 1}), ("metric", 102.0, "chief/0", {"step": 9}))
    assert made.state(200.0)["progress"]["process"] == "chief/0"


def test_each_process_shows_last_lines_and_exit():
    made = view(
        ("process", 101.0, "script", {"pid": 7, "role": "script"}),
        *(("lines", 102.0, "script", [f"line {number}"]) for number in range(LINES + 3)),
        ("still", 103.0, {"script": [12.0, 0.0]}),
        ("ended", 104.0, "script", "exit code 1"),
        ("said", 104.0, "script: exit code 1"),
        ("outcome", 105.0, {"kind": "failed", "exit_code": 1, "cause": None}),
    )
    (process,) = host_of(made)["processes"]
    assert process["lines"] == [f"line {number}" for number in range(3, LINES + 3)]
    assert (process["ended"], process["still"], host_of(made)["phase"]) == ("exit code 1", 12.0, "ended")
    state = made.state(200.0)
    assert state["said"] == [(104.0, "algo-1", "script: exit code 1")]
    assert state["outcome"]["exit_code"] == 1


def test_followers_outcome_is_not_the_jobs_outcome():
    made = view()
    note(made, "algo-2", ["host", 100.0, {**ABOUT, "host": "algo-2"}])
    note(made, "algo-2", ["outcome", 101.0, {"kind": "failed", "exit_code": 69, "cause": None}])
    assert made.state(200.0)["outcome"] is None


def test_nan_and_infinity_become_json_that_browsers_read():
    made = view(("metric", 101.0, "script", {"step": 1, "loss": float("nan"), "norm": float("inf")}))
    state = json.loads(json.dumps(made.state(200.0), allow_nan=False))
    assert state["hosts"][0]["processes"][0]["metrics"] == {"step": 1, "loss": "nan", "norm": "inf"}


# --- serve.py ---


def test_page_and_state_are_served_and_the_visit_is_recorded(tmp_path):
    browser = Client(application(tmp_path, Looks()))
    page = browser.get("/", base_url="http://localhost:8000")
    assert page.status_code == 200 and page.mimetype == "text/html" and b"<script>" in page.data
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    first = browser.get("/live", base_url="http://localhost").get_json()
    assert first.keys() == View().state(1.0).keys() and first["hosts"] == [], "nothing is known yet"
    assert (tmp_path / WATCHED).exists()
    (tmp_path / STATE).write_text('{"version": 1}')
    assert browser.get("/live", base_url="http://localhost").get_json() == {"version": 1}


@pytest.mark.parametrize(
    "method, path, host, status",
    [("GET", "/live", "evil.example", 403), ("POST", "/live", "localhost", 405), ("GET", "/etc", "localhost", 404)],
)
def test_foreign_origins_methods_and_paths_are_refused(tmp_path, method, path, host, status):
    (tmp_path / STATE).write_text('{"name": "hidden"}')
    answer = Client(application(tmp_path, Looks())).open(path, method=method, base_url=f"http://{host}")
    assert answer.status_code == status and b"hidden" not in answer.data


@pytest.mark.parametrize(
    "host, ours",
    [("localhost", True), ("localhost:80", True), ("127.0.0.1:7979", True), ("[::1]:7979", True), ("[::1]", True),
     ("", False), ("localhost.evil.example", False), ("127.0.0.1.evil.example:80", False), ("127.4.0.1:80", True)],
)  # fmt: skip
def test_only_names_of_this_machine_are_accepted_as_host(host, ours):
    assert is_this_machine(host) is ours


def test_shutdown_waits_for_a_viewer_only_with_an_open_page():
    looks = Looks()
    looks.wait_for_one(within=60)  # nobody has looked: at once
    looks.note()
    threading.Timer(0.2, looks.note).start()
    looks.wait_for_one(within=60)
