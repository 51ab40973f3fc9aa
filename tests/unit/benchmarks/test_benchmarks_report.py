"""Test benchmarks/report: the arithmetic of the pages, and that the committed pages are its output."""

import copy
import functools
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import machine
from benchmarks.report import __main__ as report
from benchmarks.report import cost, many_hosts, pages, promises, side_by_side, words
from benchmarks.report.figures import BadRecord, Measured, Ratio, measured, ratio, ratio_of_rounds, read
from benchmarks.side_by_side.aims import AIMS, INSTALL_AIMS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / pages.FOLDER


def run(case: str, side: str, number: int = 1, group: str = "start and tail", hosts: int = 2, **measures):
    """Return a run; `cut` and `codes` are the run's, all else is measured."""
    cut, codes = measures.pop("cut", None), measures.pop("codes", [0] * hosts)
    return {
        "case": case, "title": f"the case {case}", "group": group, "hosts": hosts, "side": side, "round": number,
        "measures": measures, "cut_at_s": cut, "exit_codes": codes,
    }  # fmt: skip


head = functools.cache(machine.head)  # it asks git and docker


def record(what: str, runs: list, **more):
    return {**copy.deepcopy(head(what)), "runs": runs, **more}


def page(what: str, runs: list, **more) -> list[str]:
    return pages.page(record(what, runs, **more)).splitlines()


def tables(lines: list[str]) -> dict[str, list[list[str]]]:
    """Return the rows of every table, by the first cell of its head; the last of two tables with the same one."""
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for before, line in zip(["", *lines], lines, strict=False):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and not before.startswith("|"):
            rows = found[cells[0]] = []
        elif line.startswith("|") and not line.startswith("|---"):
            rows.append(cells)
    return found


# ---- the committed pages ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages.pages(pages.records(FOLDER))


def test_committed_pages_are_what_their_figures_make(made):
    wrong = [path for path, text in made.items() if (ROOT / path).read_text() != pages.whole(path, text, ROOT)]
    assert wrong == [], "python -m benchmarks.report makes them anew"


def test_no_page_is_left_of_figures_that_are_gone(made):
    assert {f"{pages.FOLDER}/{path.name}" for path in FOLDER.glob("*.md")} <= {*made, *pages.IN_BLOCKS, *pages.BY_HAND}


def test_every_plot_of_a_page_is_there_and_small():
    for page in FOLDER.glob("*.md"):
        for name in re.findall(r"!\[[^]]*\]\(([^)]*)\)", page.read_text()):
            assert 0 < (FOLDER / name).stat().st_size < 60_000, name
    assert all(path.stat().st_size < 300_000 for path in FOLDER.glob("*.json"))


def test_a_report_is_made_of_one_file(tmp_path, monkeypatch, capsys):
    (tmp_path / "README.md").write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n")
    file = tmp_path / "mine.json"
    seconds = {"ours": 0.2, "toolkit": 2.0}
    sides = [run("start-single-1", side, hosts=1, start_s=s, tail_s=s) for side, s in seconds.items()]
    sides += [run("start-mpi-2x1", side, start_s=2 * s) for side, s in seconds.items()]
    machine.write(file, record("side-by-side", sides))
    monkeypatch.setattr(sys, "argv", ["report", str(file), "--root", str(tmp_path)])
    report.main()
    folder, printed = tmp_path / pages.FOLDER, capsys.readouterr().out.split()
    assert {f"{pages.FOLDER}/side-by-side.md", f"{pages.FOLDER}/side-by-side-start-and-tail.svg"} <= set(printed)
    assert all((tmp_path / path).exists() for path in printed)
    assert json.loads((folder / "side-by-side.json").read_text()) == json.loads(file.read_text())
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("before\n") and readme.endswith("\nafter\n") and "old" not in readme
    start_of_mpi = ["0.40", "4.00", "10 times sooner"]
    assert tables(readme.splitlines())["median"] == [["start, to the script's first line, s", *start_of_mpi]]
    assert f"]({pages.FOLDER}/README.md)" in readme and "does not win" not in readme
    index = (folder / "README.md").read_text()
    assert "](cost.md)" in index and pages.LOST not in index
    start_of_one = ["start, single host, s", "0.20", "2.00", "10 times sooner"]
    assert tables(index.splitlines())["median"] == [start_of_one, ["start, MPI, 2 hosts, s", *start_of_mpi]]


def test_a_page_whose_marks_are_gone_is_not_overwritten(tmp_path):
    (tmp_path / "README.md").write_text(f"mine\n{pages.BEGIN}\n")
    with pytest.raises(BadRecord, match="wanted: both, around what is to be made"):
        pages.whole("README.md", "text", tmp_path)


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_a_cut_run_counts_as_longer_than_any_that_ended():
    runs = [run("a", "toolkit", gone_s=3.0), run("a", "toolkit", gone_s=5.0), run("a", "toolkit", cut=180)]
    found = measured(runs, "gone_s")
    assert found == Measured((3.0, 5.0), cut=1, limit=180) and found.median == 5.0
    assert measured([*runs, run("a", "toolkit", cut=180)], "gone_s").median is None
    assert measured(runs, "launcher_cpu_s") is None, "what a cut run has no figure of was not measured"


@pytest.mark.parametrize(
    ("ours", "other", "found"),
    [
        (Measured((1.0, 2.0, 6.0)), Measured((8.0, 8.0, 100.0)), Ratio(0.25)),
        (Measured((0.9,)), Measured((), cut=2, limit=180), Ratio(0.005, "<")),
        (Measured((), cut=2, limit=180), Measured((2.0,)), Ratio(90, ">")),
        (Measured((), cut=1, limit=180), Measured((), cut=1, limit=180), None),
        (Measured((1.0,)), Measured((0.0,)), None),
        (Measured((1.0,)), None, None),
        (None, Measured((1.0,)), None),
    ],
)
def test_ratios(ours, other, found):
    assert ratio(ours, other) == found


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (Ratio(0.3), True),
        (Ratio(0.31), False),
        (Ratio(0.01, "<"), True),
        (Ratio(0.5, "<"), None),  # somewhere below 0.5: it may be met
        (Ratio(90, ">"), False),
        (Ratio(0.1, ">"), None),
    ],
)
def test_an_aim_of_three_tenths(found, met):
    assert found.meets(0.3) is met


def test_ratios_of_rounds_are_of_rounds_that_have_both_sides():
    runs = [run("a", "ours", 1, start_s=1.0), run("a", "toolkit", 1, start_s=4.0)]
    runs += [run("a", "toolkit", 2, start_s=2.0), run("a", "ours", 2, start_s=1.0), run("a", "ours", 3, start_s=9.0)]
    assert ratio_of_rounds(runs, "start_s", case="a") == [0.25, 0.5]
    assert ratio_of_rounds(runs, "tail_s", case="a") == [] == ratio_of_rounds(runs[:2], "start_s", case="a")


# ---- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.00123, "0.0012"), (0.0481, "0.048"), (0.4812, "0.48"), (4.8, "4.80"), (48.123, "48.1"),
     (481.2, "481"), (48123, "48,100")],
)  # fmt: skip
def test_numbers(value, shown):
    assert words.number(value) == shown


@pytest.mark.parametrize(
    ("figure", "measure", "shown"),
    [
        (Measured((1.0, 3.0, 2.0)), "gone_s", "2.00 (1.00-3.00)"),
        (Measured((1.9, 2.0, 2.1)), "gone_s", "2.00"),
        (Measured((1.0, 2.0)), "gone_s", "1.50 (1.00-2.00, n=2)"),
        (Measured((2.0,)), "gone_s", r"2.00\*"),
        (Measured((), 3, 180.0), "gone_s", ">180"),
        (Measured((), 1, 180.0), "gone_s", r">180\*"),
        (Measured((3.0, 5.0), 1, 180.0), "gone_s", "5.00 (3.00-5.00, 1 of 3 cut)"),
        (Measured((3.0,), 2, 180.0), "gone_s", ">180 (3.00, 2 of 3 cut)"),
        (Measured((2e6, 3e6, 4e6)), "launcher_memory_bytes", "3.00 (2.00-4.00)"),
        (Measured((0.01, 0.02, 0.03)), "split_share", "2.00 (1.00-3.00)"),
        (None, "gone_s", "not measured"),
    ],
)
def test_spreads_of_three_rounds(figure, measure, shown):
    assert words.spread(figure, measure, 3) == shown


# ---- side by side ----------------------------------------------------------------------------------------------------


def both(case: str, ours: dict, toolkit: dict, **more) -> list:
    return [run(case, "ours", **ours, **more), run(case, "toolkit", **toolkit, **more)]


def test_an_aim_that_is_missed_is_said_to_be():
    runs = both("start-mpi-2x1", {"start_s": 1.0, "tail_s": 0.1}, {"start_s": 2.0, "tail_s": 30.0})
    lines = page("side-by-side", runs)
    said = {aim: cells for aim, *cells in tables(lines)["aim"]}
    assert said["start, MPI"] == ["0.30", "0.500 (1 case)", "**missed** by the case start-mpi-2x1 (0.500)"]
    assert said["tail, MPI"] == ["0.020", "0.0033 (1 case)", "met"]
    assert said["failure to all hosts gone, MPI"][1:] == ["not measured", "not shown"]
    assert f"**1 of {len(AIMS)} aims met.**" in "\n".join(lines)
    assert tables(lines)["case"][0][3:] == ["**0.500**", "0.10", "30.0", "0.0033"]


def test_a_case_that_never_ended_is_shown_as_such():
    fails = {"group": "failure"}
    runs = both("cut-mpi-2", {"gone_s": 5.4, "codes": [69, 69]}, {"cut": 180, "codes": [None, None]}, **fails)
    runs += both("raise-ps-2-worker", {"cut": 60, "codes": [None, 1]}, {"gone_s": 1.0, "codes": [0, 1]}, **fails)
    lines = page("side-by-side", runs)
    found = tables(lines)
    assert found["Until all hosts are gone, s"] == [
        ["the case cut-mpi-2", "5.40", ">180", "<0.030, not shown", "69, 69", "none, none"],
        ["the case raise-ps-2-worker", ">60", "1.00", ">60.0", "none, 1", "**0**, 1"],
    ]


def test_a_limit_is_no_bound_of_a_tail():
    """It counts from the job's start, and it is unknown when the scripts of a job that was cut would have ended."""
    runs = both("start-ps-2", {"tail_s": 0.1}, {"tail_s": 0.8}) + both("real-ps-2", {"tail_s": 1.5}, {"cut": 60})
    found = tables(page("side-by-side", [run | {"group": "real job"} for run in runs]))
    assert found["case"][1][-3:] == ["1.50", "no end", ""]
    assert ["tail, otherwise", "0.50", "0.125 (1 case)", "met"] in found["aim"]


def test_hosts_that_report_success_of_a_failed_job_are_bold():
    failed = [run("raise-mpi-2-rank-1", "ours", codes=[1, 1], gone_s=0.3, group="failure")]
    failed += [run("raise-mpi-2-rank-1", "toolkit", n, codes=[1, 0], gone_s=154.0, group="failure") for n in (1, 2)]
    failed = [each | {"right": 0 not in each["exit_codes"]} for each in failed]
    lines = page("side-by-side", failed)
    assert tables(lines)["Until all hosts are gone, s"][0][-2:] == ["1, 1", "1, **0**"]
    assert "ended as the job did: ours 1 of 1, toolkit 0 of 2." in " ".join(lines)


def test_a_side_that_was_not_run_is_not_invented():
    lines = page("side-by-side", [run("start-single-1", "ours", start_s=0.5)])
    assert tables(lines)["Start, s"] == [["the case start-single-1", "0.50", "not measured"]]


def test_where_the_toolkit_does_better_is_said():
    runs = both("kill-mpi-2-worker", {"gone_s": 6.0}, {"gone_s": 2.0}, group="failure")
    lines = {"lines_per_s": 10.0, "split_share": 0.0}, {"lines_per_s": 20.0, "split_share": 0.5}
    runs += both("log-single-1", *lines, group="log")
    lines = page("side-by-side", runs)
    assert "The toolkit does better in 2 comparisons." in " ".join(lines)
    assert tables(lines)["better than ours"] == [
        ["toolkit", "until all hosts are gone", "the case kill-mpi-2-worker (3.00)"],
        ["toolkit", "lines per second", "the case log-single-1 (0.500)"],
    ]


def test_a_third_side_has_columns_of_its_own_and_what_it_cannot_is_said():
    runs = [*both("start-single-1", {"start_s": 0.3}, {"start_s": 3.0}), run("start-single-1", "drivers", start_s=0.1)]
    runs += both("real-deepfm-2", {"wall_s": 30.0}, {"wall_s": 60.0}, group="real job")
    cases = [{"name": "real-deepfm-2", "cannot": {"drivers": "no driver"}}, {"name": "start-single-1"}]
    lines = page("side-by-side", runs, cases=cases)
    found = tables(lines)
    assert found["Start, s"][0][-2:] == ["0.100", "0.10"]
    assert found["Whole job, s"][0][-2:] == ["0.500", ""]
    assert found["better than ours"] == [["SDK 3's drivers", "start", "the case start-single-1 (3.00)"]]
    assert "SDK 3" not in " ".join(page("side-by-side", runs[:2], cases=cases))
    from benchmarks.report import plots

    drawn = plots.sides(side_by_side.plots(side_by_side.rows(runs))["start and tail"])
    assert "SDK 3's drivers" in re.findall(r">([^<]*)</text>", drawn)
    made = {
        path: " ".join(text.split())
        for path, text in pages.pages({"side-by-side": record("side-by-side", runs)}).items()
    }
    assert "starts by itself is better** in: start (1 case)." in made[f"{pages.FOLDER}/README.md"]
    assert "of 1 with what SageMaker's SDK 3 starts by itself it loses 1: [the losses" in made["README.md"]


def test_jobs_by_hand_have_a_section_of_their_own():
    runs = both("start-mpi-2x1", {"start_s": 0.9}, {"start_s": 4.0})
    runs += [run("start-single-1", "ours", start_s=0.3), run("raise-mpi-2", "ours", gone_s=0.3, group="failure")]
    hand = [run("start-mpi-2x1", "mpirun", start_s=1.1), run("start-mpi-2x1", "horovodrun", start_s=9.0, tail_s=1.0)]
    hand += [run("raise-mpi-2", "mpirun", cut=180, group="failure"), run("start-single-1", "plain", start_s=0.05)]
    runs, hand = ([each | {"right": each["cut_at_s"] is None} for each in some] for some in (runs, hand))
    of_single = dict.fromkeys(("mpirun", "horovodrun"), "nothing for plain scripts") | {"torchrun": "no torch"}
    cases = [
        {"name": "start-single-1", "cannot": of_single},
        {"name": "start-mpi-2x1", "cannot": {"plain": "nothing for MPI", "torchrun": "no torch"}},
    ]
    without, lines = (page("side-by-side", some, cases=cases) for some in (runs, [*runs, *hand]))
    head, section = lines[: lines.index("## By hand")], lines[lines.index("## By hand") :]
    assert without == [*head, *section[section.index("## How it was measured") :]], "nothing else changes"
    found = tables(section)
    assert "| Start, s | ours | mpirun | horovodrun | plain |" in section
    assert found["Start, s"] == [
        ["the case start-mpi-2x1", "0.90", "1.10", "9.00", ""],
        ["the case start-single-1", "0.30", "", "", "0.050"],
    ]
    assert found["Tail, s"] == [["the case start-mpi-2x1", "not measured", "not measured", "1.00", ""]]
    assert found["Until all hosts are gone, s"] == [["the case raise-mpi-2", "0.30", ">180", *["not measured"] * 2]]
    assert "ended as the job did: ours 3 of 3, mpirun 1 of 2, horovodrun 1 of 1, plain 1 of 1." in " ".join(section)
    assert "- mpirun has nothing for plain scripts." in section and "- torchrun has no torch." in section


def test_restarts_have_a_section_that_says_what_the_others_have():
    figures = {"again_s": 8.0, "own_s": 7.2, "left_s": 0.3}
    runs = [run("restart-mpi-2", "ours", n, group="restart", resumed_s=0.8, **figures) for n in (1, 2)]
    runs = [each | {"right": True} for each in runs]
    lines = page("side-by-side", runs)
    said = " ".join(lines[lines.index("## Restart after a crash") :])
    assert tables(lines)["case"] == [["the case restart-mpi-2", "8.00", "7.20", "0.80", "0.30"]]
    assert "at most 1.00 s (met)" in said and "submits the job again" in said and "`hvd.elastic`" in said
    assert "ended as the job did: ours 2 of 2." in said
    slow = [run("restart-mwms-2", "ours", n, group="restart", resumed_s=1.2, **figures) for n in (1, 2)]
    assert "at most 1.00 s (**missed**)" in " ".join(page("side-by-side", [*runs, *slow]))
    lost = [{**runs[0], "measures": {}}]
    assert "(not shown)" in " ".join(page("side-by-side", lost)), "a run that did not resume shows no aim as met"
    assert "Restart" not in " ".join(page("side-by-side", [run("start-single-1", "ours", start_s=0.3)]))


def test_a_hang_that_a_side_never_reports_is_shown_as_never():
    runs = both("hang-mpi-2", {"hang_told_s": 22.0, "gone_s": 22.3}, {"cut": 60, "codes": [None, None]}, group="hang")
    runs += [run("hang-mpi-2", "mpirun", cut=60, group="hang")]
    runs = [each | {"right": each["side"] == "ours"} for each in runs]
    lines = page("side-by-side", runs)
    section = lines[lines.index("## When a process hangs") :]
    (told,) = tables(section)["case"]
    assert told == ["the case hang-mpi-2", "22.0", "never", "22.3", ">60", "<0.372"]
    assert "10 s here (600 s by default)" in " ".join(section)
    without = tables(page("side-by-side", runs[:1]))["case"]
    assert without == [["the case hang-mpi-2", "22.0", "not measured", "22.3", "not measured"]]
    by_hand = tables(lines[lines.index("## By hand") :])
    assert by_hand["Until the log reports the hang, s"] == [["the case hang-mpi-2", "22.0", "never"]]
    assert by_hand["Until all hosts are gone, s"] == [["the case hang-mpi-2", "22.3", ">60"]]
    assert "| failure to all hosts gone, MPI | 0.020 | not measured | not shown |" in lines, "a hang is no failure"


def test_what_watching_costs_is_shown_beside_what_the_sdk_starts():
    runs = [
        run("start-single-1", side, hosts=1, start_s=s, launcher_memory_bytes=s * 1e8)
        for side, s in (("ours", 0.2), ("toolkit", 4.0), ("drivers", 0.15), ("ours-unwatched", 0.1))
    ]
    without = page("side-by-side", runs[:-1])
    lines = page("side-by-side", runs)
    begin = lines.index("## What watching costs")
    section = lines[begin : lines.index("## How it was measured")]
    assert without == [*lines[:begin], *lines[lines.index("## How it was measured") :]], "nothing else changes"
    assert "| Start, s | ours | ours, without its monitor | SDK 3's drivers |" in section
    found = tables(section)
    assert found["Start, s"] == [["the case start-single-1", "0.20", "0.10", "0.15"]]
    assert found["Most memory, MB"] == [["the case start-single-1", "20.0", "10.0", "15.0"]]


def test_output_that_only_we_lose_is_a_loss():
    runs = both("unread-end-1", {"lost_share": 0.9}, {"lost_share": 0.0}, group="unread output")
    (row,) = tables(page("side-by-side", runs))["better than ours"]
    assert row == ["toolkit", "lost output", "the case unread-end-1 (it loses nothing)"]


def test_every_aim_is_of_a_measure_that_is_shown():
    shown = {measure for measures in side_by_side.SECTIONS.values() for measure in measures}
    assert {aim.measure for aim in (*AIMS, *INSTALL_AIMS)} <= shown


def test_installs_have_a_page_with_aims_of_their_own():
    runs = [
        *both(
            "packages-110-hosts-1",
            {"install_s": 9.0, "install_cpu_s": 6.0},
            {"install_s": 100.0, "install_cpu_s": 60.0},
            group="packages",
        ),
        *both(
            "packages-1-hosts-1-cached",
            {"install_s": 3.0, "install_cpu_s": 0.2},
            {"install_s": 2.0, "install_cpu_s": 2.0},
            group="packages",
        ),
        *both("packages-silent", {"gone_s": 8.0}, {"gone_s": 110.0}, group="packages"),
    ]
    lines = page("installs", runs, uv={"bytes": 38_400_000, "compressed_bytes": 16_900_000})
    assert "**1 of 2 aims met.**" in lines and "38.4 MB of the image, 16.9 MB of it in a registry" in " ".join(lines)
    found = tables(lines)
    assert found["Install, s"][1] == ["the case packages-1-hosts-1-cached", "3.00", "2.00", "**1.50**"]
    assert found["CPU time of the install, s"][1][1:] == ["0.20", "2.00", "0.100"]
    assert found["Until all hosts are gone, s"] == [["the case packages-silent", "8.00", "110"]]


# ---- many hosts, profile, others -------------------------------------------------------------------------------------


def test_growth_is_that_between_the_two_largest_jobs():
    figures = {10: Measured((5.0,)), 100: Measured((1.0,)), 1000: Measured((100.0,))}
    assert many_hosts.exponent(figures) == pytest.approx(2)
    assert many_hosts.exponent({10: Measured((5.0,))}) is None


def test_with_a_core_for_each_host_only_the_coordinators_work_grows():
    found = {
        "rendezvous_s": {10: Measured((0.25,)), 1000: Measured((8.0,))},
        "rendezvous_coordinator_cpu_s": {10: Measured((0.125,)), 1000: Measured((0.75,))},
    }
    assert many_hosts.modelled(found, 1000) == {"rendezvous_s": 1.0}
    assert many_hosts.modelled(found, 300) == {}


def test_aims_at_a_thousand_hosts():
    runs = [
        {"hosts": hosts, "round": 1, "measures": {"rendezvous_s": hosts / 50, "told_all_s": 1.0}}
        for hosts in (100, 1000)
    ]
    lines = page("many-hosts", runs)
    assert ["Rendezvous, s", "2.00", "20.0", "1.00"] in tables(lines)["measure"]
    assert "| Rendezvous, s | 10.0 | 20.0 | **missed** |" in lines
    assert "| Failure until all hosts know, s | 2.00 | 1.00 | met |" in lines
    assert "The figures grow as the number of hosts to that power between 100 and 1,000 hosts." in lines


def test_phases_are_summed_by_run():
    runs = [
        {"case": "mpi", "title": "MPI", "side": side, "round": number, "measures": {"start_s": 0.5, "tail_s": 0.1},
         "phases": {"start": [["ssh", 0.1 * number], ["ssh", 0.1], ["script", 0.2]], "end": [["all", 0.1]]}}
        for side in ("ours", "floor") for number in (1, 2, 3)
    ]  # fmt: skip
    lines = page("profile", runs)
    assert tables(lines)[""] == [
        ["ssh", *["300"] * 2],
        ["script", *["200"] * 2],
        ["**container start to the script's first line**", *["500"] * 2],
        ["**the script's end to the container's exit**", *["100"] * 2],
    ], "a phase alone is all of it"


def test_random_jobs_by_mode_and_fault():
    def run(number, mode, exits, drawn, happened, *rules):
        measures = {"wall_s": 4.0 + number, "end_s": float(number), "stood_still_s": 0.0}
        return {"case": f"7/{number}", "mode": mode, "hosts": 2, "drawn": drawn, "happened": happened, "exits": exits,
                "violations": [*rules], "measures": measures}  # fmt: skip

    runs = [
        run(1, "mwms", ["69", "SIGKILL"], ["kill", "cut"], ["kill"]),
        run(2, "mwms", ["0"], ["kill", "kill"], []),
        run(3, "mpi", ["137", "69"], ["cut"], ["cut"], "bound", "lines"),
    ]
    lines = page("chaos", runs, limits={"seed": 7, "least_faults": 1})
    assert "**2 jobs with 1 fault or more: 1 violation.**" in lines
    assert "1 job with fewer, as some that were drawn did not happen: 0 violations." in " ".join(lines)
    found = tables(lines)
    assert found["mode"] == [
        ["mpi", "1", "0", "0", "0", "1", "7.00 (7.00)", "3.00 (3.00)"],
        ["mwms", "2", "1", "0", "1", "0", "5.50 (6.00)", "1.50 (2.00)"],
    ]
    assert "so many did: cut 1 of 2, kill 1 of 3." in " ".join(" ".join(lines).split())
    assert found["case"] == [["7/3", "bound, lines"]]
    assert "Faults that happened in one job: 0 in 1 job, 1 in 2 jobs." in " ".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "wanted: a JSON file that a benchmark wrote"),
        ("[]", "no what, date, commit, command, machine, runs"),
        (json.dumps({**head("chaos"), "runs": [{"case": "a"}]}), "run 1 has no measures"),
        (json.dumps({**head("threads"), "runs": []}), "is of 'threads', which has no page"),
    ],
    ids=["no JSON", "no record", "no measures", "no page"],  # by itself, pytest would take the text, which has the load
)
def test_a_file_that_is_no_record_is_named_in_one_line(tmp_path, text, said):
    file = tmp_path / "pipe.json"
    file.write_text(text)
    with pytest.raises(BadRecord) as error:
        read(file, pages.PAGES)
    assert str(file) in str(error.value) and said in str(error.value) and "\n" not in str(error.value)


# ---- the cost --------------------------------------------------------------------------------------------------------


COST_RUNS = [
    *both("start-mpi-2x1", {"start_s": 1.0, "tail_s": 0.1}, {"start_s": 4.0, "tail_s": 31.0}),
    *both("start-mpi-4x1", {"start_s": 1.5, "tail_s": 0.2}, {"start_s": 5.0, "tail_s": 32.0}, hosts=4),
    *both("raise-mpi-2-rank-0", {"gone_s": 0.2}, {"gone_s": 100.0}, group="failure"),
    *both("raise-mpi-2-rank-1", {"gone_s": 0.4}, {"cut": 180}, group="failure"),
]
MANY = [
    {"hosts": hosts, "round": 1, "measures": {"rendezvous_s": hosts / 100, "told_all_s": hosts / 1000}}
    for hosts in (10, 100, 1000)
]


def test_cost_against_numbers_by_hand():
    """2 hosts as measured; 16 with the seconds of 4, and ours with what 100 hosts take on one machine besides."""
    none = {line.hosts: line for line in cost.lines_of(COST_RUNS, many_hosts.by_hosts(MANY))}
    assert none[2].ours.job == pytest.approx(2 * 1.1) and none[2].toolkit.job == pytest.approx(2 * 35.0)
    assert none[16].ours.job == pytest.approx(16 * (1.5 + 1.0 + 0.2 + 0.1))
    assert none[16].toolkit.job == pytest.approx(16 * 37.0)
    assert none[2].toolkit.year == pytest.approx(70 * 100 * 365 / 3600)
    assert (none[2].toolkit.at_least, none[16].measured) == ("", 4)

    tenth = {line.hosts: line for line in cost.lines_of(COST_RUNS, {}, failed_share=0.1)}
    assert tenth[2].ours.job == pytest.approx(2 * (1.0 + 0.9 * 0.1 + 0.1 * 0.3))
    assert tenth[2].toolkit.job == pytest.approx(2 * (4.0 + 0.9 * 31.0 + 0.1 * 140.0))
    assert (tenth[2].toolkit.at_least, tenth[2].ours.at_least) == ("≥", "")
    assert tenth[16].ours.job == pytest.approx(16 * (1.5 + 0.9 * 0.2 + 0.1 * 0.3))


def test_cost_says_what_was_not_measured():
    text = pages.pages({"side-by-side": record("side-by-side", COST_RUNS)})[f"{pages.FOLDER}/cost.md"]
    body = [line for line in text.splitlines() if line.startswith("| MPI, Horovod | 16")]
    (cells,) = [[cell.strip() for cell in line.strip("|").split("|")] for line in body]
    assert cells[1] == r"16\*"
    assert r"\* [Carried over](#how-it-was-computed) from fewer hosts" in " ".join(text.split())
    assert [cell[0] == "≥" for cell in cells[2:]] == [False, False, False, True]
    assert cells[2:4] == [words.number(16 * 1.7), words.number(16 * 37.0)]
    assert "its growth was not measured" in " ".join(text.split())


# ---- the plots -------------------------------------------------------------------------------------------------------


def test_a_plot_has_the_medians_and_says_what_did_not_end():
    runs = both("cut-mpi-2", {"gone_s": 5.4}, {"cut": 180}, group="failure")
    runs += both("raise-mpi-2", {"gone_s": 0.3}, {"gone_s": 154.2}, group="failure")
    runs += both("real-ps-2", {"tail_s": 1.5}, {"cut": 60}, group="real job")
    from benchmarks.report import plots

    drawn = side_by_side.plots(side_by_side.rows(runs))
    texts = {section: re.findall(r"<text[^>]*>([^<]*)</text>", plots.sides(rows)) for section, rows in drawn.items()}
    title = "Until all hosts are gone, s, log scale"
    assert {"5.40", "&gt; 180", "0.30", "154", "not ended at the limit", title} <= set(texts["failure"])
    assert {"1.50", "job not ended", "the case real-ps-2", "ours", "toolkit"} <= set(texts["real job"])


def test_a_plot_of_growth_has_the_aim_and_the_same_figures_make_the_same_file():
    from benchmarks.report import plots

    svg = plots.growth(MANY)
    assert svg == plots.growth(MANY) and {"Rendezvous, s", "aim", "1,000"} <= set(re.findall(r">([^<]*)</text>", svg))


# ---- the head of the JSON --------------------------------------------------------------------------------------------


def test_a_command_has_no_path_of_this_machine():
    words_ = ["/usr/bin/python3", "-m", "benchmarks.x", "--json=/tmp/a b.json", str(ROOT / "docs/x.json"), "/tmp/y"]
    assert machine.command(words_) == "python -m benchmarks.x '--json=a b.json' docs/x.json y"


def test_records_are_read_as_they_were_written(tmp_path):
    written = record("pipe", [{"case": "a", "measures": {"x_s": 1.5}}, {"case": "b", "measures": {}}], empty={})
    machine.write(tmp_path / "pipe.json", written)
    assert read(tmp_path / "pipe.json", ["pipe"]) == written and written["machine"]["load_after"] >= 0
    assert (tmp_path / "pipe.json").read_text().count("\n") < 20


# ---- what the first pages show of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found, measure, said",
    [
        (Ratio(0.00041), "gone_s", "2,400 times sooner"),
        (Ratio(0.054), "start_s", "19 times sooner"),
        (Ratio(0.706), "gone_s", "1.4 times sooner"),
        (Ratio(0.0017, "<"), "gone_s", "more than 590 times sooner"),
        (Ratio(1.68), "start_s", "1.7 times as long"),
        (Ratio(2.0, ">"), "gone_s", "more than 2.0 times as long"),
        (Ratio(0.254), "launcher_memory_bytes", "3.9 times less"),
        (Ratio(1.5), "cpu_us_per_line", "1.5 times as much"),
        (Ratio(0.5), "lines_per_s", "2.0 times less"),
        (Ratio(1.02), "gone_s", "as good"),
        (None, "gone_s", ""),
    ],
)
def test_a_ratio_in_words(found, measure, said):
    assert words.times(found, measure) == said


def block_of(page: Path) -> str:
    return page.read_text().partition(pages.BEGIN)[2].partition(pages.END)[0]


def is_worse(row: side_by_side.Row) -> bool:
    value = row.ratio.value if row.ratio else 1
    return value < 1 if row.measure in side_by_side.MORE_IS_BETTER else value > 1


def lost() -> list[side_by_side.Row]:
    runs = pages.records(FOLDER)["side-by-side"]["runs"]
    return [row for row in side_by_side.rows(runs) if row.met is False or is_worse(row)]


def test_the_benchmarks_page_shows_all_that_is_slower_and_every_aim_that_was_missed():
    block = block_of(FOLDER / "README.md")
    wins, _, losses = block.partition(pages.LOST)
    assert bool(lost()) == bool(losses)
    for row in lost():
        said = f"| {words.title(row.measure).lower()}, {row.title}, "
        line = next(line for line in losses.splitlines() if line.startswith(said))
        assert words.times(row.ratio, row.measure) in line
        assert row.met is not False or f"(aim: {words.times(Ratio(row.aim.ratio), row.measure)})" in line
    assert "times sooner" in wins and "as long" not in wins
    assert not re.search(r"\| <? ?0\.00", block)  # no ratio that nobody can read


def test_the_readme_has_three_rows_counts_the_losses_and_links_to_them():
    block = " ".join(block_of(ROOT / "README.md").split())
    assert len(tables(block_of(ROOT / "README.md").splitlines())["median"]) == 3
    worse = sum(is_worse(row) for row in lost())
    assert f"it loses {worse} and misses our own aim in {len(lost()) - worse}" in block
    if lost():
        (anchor,) = re.findall(rf"\[the losses[^]]*\]\({pages.FOLDER}/README\.md#([\w-]+)\)", block)
        heading = pages.LOST.removeprefix("## ").lower().replace(",", "").replace(" ", "-")
        assert anchor == heading


# ---- what README promises --------------------------------------------------------------------------------------------


def promised(runs: list, **more) -> dict[str, list[str]]:
    """Return the cells of the table of promises, by the promise."""
    made = pages.pages({"side-by-side": record("side-by-side", runs, date="2026-01-02", commit="abc1234", **more)})
    index = made[f"{pages.FOLDER}/README.md"]
    assert index.startswith("## What README promises\n"), "it comes first"
    return {name: cells for name, *cells in tables(index.splitlines())["README promises"]}


def test_the_table_of_promises_has_our_worst_case_and_the_best_peer():
    runs = both("raise-mpi-2-rank-0", {"gone_s": 0.2}, {"gone_s": 154.0}, group="failure")
    runs += both("raise-mpi-4-rank-3", {"gone_s": 0.4}, {"cut": 180}, group="failure")
    runs += [run("raise-mpi-4-rank-3", "drivers", gone_s=20.0, group="failure")]
    runs += [run("raise-mpi-4-rank-3", "mpirun", gone_s=2.0, group="failure")]
    runs += both("kill-ps-2-worker", {"gone_s": 12.0}, {"cut": 60}, group="failure")
    runs += both("start-mpi-2x1", {"start_s": 0.5, "tail_s": 0.1}, {"start_s": 0.4, "tail_s": 31.0})
    runs += both("stop-mpi-2", {"told_s": 0.05}, {}, group="stop")
    runs += both("hang-mpi-2", {"hang_told_s": 22.0, "gone_s": 22.3}, {"cut": 60}, group="hang")
    made = "2026-01-02, `abc1234`"
    found = promised(runs)
    (hang,) = (cells for name, cells in found.items() if name.startswith("a process hangs, until the log shows where"))
    assert hang[1:3] == ["22.0 s", "never (AWS toolkit)"]
    assert found["a rank raises, until all hosts are gone"][1:] == [
        "0.20 s",
        "154 s (AWS toolkit)",
        "770 times sooner",
        made,
    ]
    assert found["a script raises, until all hosts are gone"] == [
        "within seconds", "0.40 s (worst of 2: the case raise-mpi-4-rank-3)", "2.00 s (mpirun by hand)",
        "5.0 times sooner", made,
    ]  # fmt: skip
    assert found["a host is killed, until all others are gone"] == [
        "within seconds", "**12.0 s: not kept**", "not ended after 60 s (AWS toolkit)", "more than 5.0 times sooner",
        made,
    ]  # fmt: skip
    assert found["start, to the script's first line"][-2] == "1.2 times as long"
    assert found["SIGTERM, until it has reached every script"][1:] == ["0.050 s", "never (AWS toolkit)", "", made]
    assert found["an install fails, until all hosts are gone"] == ["within seconds", "not measured", "", "", ""]
    assert found["`entrypoint accept` on SageMaker"][:2] == ["at most $1.38", "not measured (never run on SageMaker)"]
    (said,) = re.findall(r"Of \d+ promises, .* does better\.", promises_text(runs))
    measured_ones = [cells for cells in found.values() if not cells[1].startswith("not measured")]
    unknown = len(found) - len(measured_ones)
    assert said == f"Of {len(found)} promises, {unknown} were not measured, 1 is not kept, and in 1 a peer does better."


def promises_text(runs: list) -> str:
    return " ".join(
        pages.render("promises", **promises.context({"side-by-side": record("side-by-side", runs)})).split()
    )


def test_without_any_figure_each_promise_is_not_measured():
    table = promises.context({})
    assert all(cells[2].startswith("not measured") for cells in table["lines"])
    assert table["unknown"] == len(promises.PROMISES) and table["broken"] == table["beaten"] == 0


def by_hand_of_readme() -> str:
    before, _, rest = (ROOT / "README.md").read_text().partition(pages.BEGIN)
    return " ".join((before + rest.partition(pages.END)[2]).split())


def test_every_figure_of_the_readme_is_among_the_promises():
    readme = by_hand_of_readme()
    quotes = [promise.quote for promise in promises.PROMISES if promise not in promises.FIRST]
    assert [quote for quote in quotes if quote not in readme] == [], "README says it in other words now"
    for quote in quotes:
        readme = readme.replace(quote, "")
    figures = r"[^.]*(?:\$ ?\d(?!\d*456)|\b(?:milli)?seconds?\b|\bminutes?\b|\d+ (?:s|ms|MB|%)\b|\btimes\b)[^.]*"
    assert re.findall(figures, readme) == [], "a promise with a figure that is not in benchmarks/report/promises.py"


def test_the_rows_of_the_readme_are_promises_with_the_same_figures():
    index = tables(block_of(FOLDER / "README.md").splitlines())["README promises"]
    of_promises = {name: cells for name, *cells in index}
    for name, ours, *_ in tables(block_of(ROOT / "README.md").splitlines())["median"]:
        row, _, unit = name.rpartition(", ")
        assert of_promises[row][1] == f"{ours} {unit}"


def test_pages_of_different_commits_say_so():
    sides = both("start-mpi-2x1", {"start_s": 0.5, "tail_s": 0.1}, {"start_s": 4.0, "tail_s": 31.0})
    found = {"side-by-side": record("side-by-side", sides, commit="aaa"), "chaos": record("chaos", [], commit="bbb+")}
    note = "Other pages are of [other commits](README.md#all-pages)."
    made = {path: " ".join(text.split()) for path, text in pages.pages(found).items()}
    assert all(note in made[f"{pages.FOLDER}/{what}.md"] for what in ("side-by-side", "chaos", "cost"))
    index = made[f"{pages.FOLDER}/README.md"]
    assert "**The pages are of 2 commits**" in index and "`aaa` (side-by-side); `bbb+` (chaos)." in index
    found["chaos"]["commit"] = "aaa"
    made = pages.pages(found)
    assert not any("commits" in text for text in made.values())
    assert "All pages are of commit `aaa`." in made[f"{pages.FOLDER}/README.md"]


# ---- Pipe mode and killed trainings ----------------------------------------------------------------------------------


def test_pipe_mode_against_the_operator_and_a_file():
    rates = {"operator": 100.0, "our reader": 200.0, "file": 250.0}
    runs = [
        {"format": "TFRecord", "record": "1 KB", "reader": reader, "round": number, "load": 0.5,
         "measures": {"records_per_s": rate * number, "cpu_s_per_gb": 1.0}}
        for number in (1, 2, 3) for reader, rate in rates.items()
    ]  # fmt: skip
    lines = page("pipe", runs, limits={"megabytes": 800})
    text = " ".join(lines)
    assert "**In Pipe mode our reader is 2.00 times as fast as sagemaker-tensorflow's operator.**" in text
    assert "page cache: TFRecord of 1 KB 0.80 (**missed**; the operator 0.40)." in text
    cells = ["TFRecord", "1 KB", "our reader", "400 (200 to 600)", "1.00 (1.00 to 1.00)"]
    assert cells in tables(lines)["format"]
    assert "operator.**" not in " ".join(page("pipe", [each for each in runs if each["reader"] != "operator"]))


def test_killed_trainings_by_mode():
    def training(mode, kind, number, auc, kills=0):
        more = {"kills": kills, "at_checkpoint": kills // 2, "resumed": kills}
        return {"mode": mode, "kind": kind, "round": number, **more, "measures": {"auc": auc, "steps": 9}}

    runs = [training("ps", "killed", 1, 0.71, 3), training("ps", "killed", 2, 0.73, 3)]
    lines = page("kills", [*runs, training("ps", "not killed", 1, 0.725)])
    assert tables(lines)[""] == [
        ["parameter servers", "6, 2", "2", "0.720 (0.710 0.730)", "0.725 (0.725)"],
    ]
    assert "Of 6 jobs of DeepFM that were killed at random moments, 2 of them" in " ".join(lines)
