"""Test that docs/benchmarks and README match the JSON files, and how promises are judged by them."""

import re

import pytest

from benchmarks import machine
from benchmarks.all import COMMANDS, filled
from benchmarks.all import main as measure_all
from benchmarks.compare import FIRST, PROMISES, Promise, compared, find, losses
from benchmarks.figures import Figure, Ratio, figure, ratio, shown, times
from benchmarks.report import BEGIN, END, FOLDER, PAGES, ROOT, index, joined, made, read, whole
from benchmarks.side_by_side.cases import REAL


def test_committed_benchmark_pages_match_their_figures():
    """If this fails after a change, run `python -m benchmarks.report` and read the diff."""
    for path, text in made(read(ROOT / FOLDER)).items():
        assert (ROOT / path).read_text() == whole(ROOT / path, text), path


def test_every_readme_figure_is_a_promise():
    text = (ROOT / "README.md").read_text()
    readme = " ".join((text[: text.index(BEGIN)] + text[text.index(END) :]).split())
    quotes = [promise.quote for promise in PROMISES if promise not in FIRST]
    assert [quote for quote in quotes if quote not in readme] == [], "README says it in other words now"
    for quote in quotes:
        readme = readme.replace(quote, "")
    figures = r"[^.]*(?:\$ ?\d(?!\d*456)|\b(?:milli)?seconds?\b|\bminutes?\b|\d+ (?:s|ms|MB|%)\b|\btimes\b)[^.]*"
    assert re.findall(figures, readme) == [], "a promise with a figure that is not in benchmarks/compare.py"


def run(side: str, case: str = "raise-mpi-2-rank-0", cut_at_s: float | None = None, **measures: float) -> dict:
    return {"case": case, "title": case, "group": "failure", "side": side, "measures": measures, "cut_at_s": cut_at_s}


def test_run_cut_at_the_limit_counts_as_the_longest():
    runs = [run("ours", gone_s=3.0), run("ours", cut_at_s=60.0), run("ours", cut_at_s=60.0)]
    found = figure(runs, "gone_s", side="ours")
    assert (found.median, found.at_least, found.runs) == (None, 60.0, 3)
    assert shown(found, "gone_s") == ">60 (3.00, 2 of 3 cut)"
    # Its limit is counted from the failure, and says nothing of a tail.
    assert figure([run("ours", cut_at_s=60.0)], "tail_s").at_least is None
    assert figure([run("ours")], "gone_s") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted", "meets"),
    [
        (Figure((1.0,)), Figure((2.0,)), Ratio(0.5), False),
        (Figure((1.0,)), Figure((4.0,)), Ratio(0.25), True),
        (Figure((1.0,)), Figure((), 1, 10.0), Ratio(0.1, "<"), True),
        (Figure((6.0,)), Figure((), 1, 10.0), Ratio(0.6, "<"), None),  # it may be met, as the other never ended
        (Figure((), 1, 10.0), Figure((5.0,)), Ratio(2.0, ">"), False),
    ],
)
def test_ratio_to_cut_job_is_a_bound(ours, theirs, wanted, meets):
    assert ratio(ours, theirs) == wanted
    assert wanted.meets(0.3) is meets


def test_ratio_needs_a_measured_figure_on_both_sides():
    assert ratio(None, Figure((1.0,))) is ratio(Figure((1.0,)), Figure((0.0,))) is None
    assert ratio(Figure((), 1, 60.0), Figure((), 1, 60.0)) is None


@pytest.mark.parametrize(("found", "text"), [(Ratio(1.0), "as good"), (Ratio(1.7), "1.7 times as long")])
def test_ratio_is_described_in_words(found, text):
    assert times(found, "gone_s") == text


def test_nonzero_share_is_worse_than_zero():
    runs = [{**run(side, split_share=share), "group": "log"} for side, share in (("ours", 0.1), ("toolkit", 0.0))]
    (only,) = compared(runs, "toolkit")
    assert only.is_worse and only.ratio is None


def test_lost_start_shows_the_ratio_of_the_whole_job():
    figures = {"ours": {"start_s": 4.0, "wall_s": 10.0}, "toolkit": {"start_s": 2.0, "wall_s": 20.0}}
    runs = [{**run(side, "real-ps-2", **measures), "group": REAL} for side, measures in figures.items()]
    assert [ratios for *_, ratios in losses(runs)] == ["2.00 (whole job: 0.500)"]


def record(*runs: dict) -> dict:
    return {"side-by-side": {"date": "2026-11-29", "commit": "abc", "runs": list(runs)}}


def test_promise_compares_our_worst_case_with_the_best_peer():
    promise = Promise(row="raises", quote="q", says="within seconds", measure="gone_s", cases="raise-*", most=10.0)
    runs = [run("ours", "raise-a", gone_s=1.0), run("ours", "raise-b", gone_s=4.0), run("ours", "kill-a", gone_s=90.0)]
    runs += [run("toolkit", "raise-b", gone_s=30.0), run("mpirun", "raise-b", gone_s=5.0)]
    found = find(promise, record(*runs))
    assert found.cells() == ["raises", "within seconds", "4.00 s (worst of 2: raise-b)", "5.00 s (mpirun by hand)",
                             "1.2 times sooner", "2026-11-29, `abc`"]  # fmt: skip
    assert not found.is_broken and not found.is_beaten
    beaten = find(promise, record(*runs, run("plain", "raise-b", gone_s=3.0)))
    assert beaten.is_beaten and not beaten.is_broken
    broken = find(promise, record(run("ours", "raise-a", gone_s=11.0)))
    assert broken.is_broken and "**11.0 s: not kept**" in broken.cells()[2]
    assert find(promise, record(run("ours", "raise-a", cut_at_s=60.0))).is_broken


def test_promises_without_a_figure_are_shown_as_not_measured():
    assert all(find(promise, {}).cells()[2].startswith("not measured") for promise in PROMISES)
    assert f"Of {len(PROMISES)} promises, {len(PROMISES)} were not measured" in " ".join(joined(index({})).split())


def test_page_without_marks_is_not_overwritten(tmp_path):
    (tmp_path / "page.md").write_text("by hand")
    with pytest.raises(ValueError, match="benchmarks:begin"):
        whole(tmp_path / "page.md", "figures")


def test_one_command_measures_each_page_into_its_file():
    assert COMMANDS.keys() == PAGES.keys()
    for what in COMMANDS:
        words = filled(what).split()
        assert any(word.endswith(f"/{what}.json") for word in words) and not any("{" in word for word in words)


def test_benchmark_measured_on_this_commit_is_not_repeated(monkeypatch, capsys):
    ran = []
    monkeypatch.setattr("benchmarks.machine.commit", lambda: "abc")
    monkeypatch.setattr("benchmarks.all.commit_of", {"profile": "abc", "chaos": "other", "pipe": ""}.get)
    monkeypatch.setattr("benchmarks.all.measured", lambda what, commit: ran.append((what, commit)) or what == "chaos")
    monkeypatch.setattr("sys.argv", ["all", "--only", "profile", "chaos", "pipe"])
    assert measure_all() == 1
    assert ran == [("chaos", "abc"), ("pipe", "abc")]
    assert capsys.readouterr().out.strip() == "FAILED: pipe"
    monkeypatch.setattr("benchmarks.machine.commit", lambda: "abc+")
    with pytest.raises(SystemExit, match="found a tree with changes"):
        measure_all()


def test_recorded_command_has_no_path_of_this_machine():
    words = ["python", "-m", "benchmarks.pipe", "--json", "/elsewhere/pipe.json", f"--keep={ROOT}/out"]
    assert machine.command(words) == "python -m benchmarks.pipe --json pipe.json --keep=out"
