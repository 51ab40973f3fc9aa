"""Test the parts of the GPU ring (tests/gpu) that need no GPU: what is packed, how a case is judged, the table."""

import hashlib
import io
import struct
import sys
from pathlib import Path

import pytest
from gpu import packing, running
from gpu.cases import ALL, CASES, Case, chosen, local
from gpu.judge import Outcome, Ran, Row, complaints, seen, table, verdict
from gpu.kernels import MAGIC, strip
from gpu.pieces import CHECKSUMS, write_pieces
from gpu.running import Here, run

PTX, PROGRAM = 1, 2


# ---- packing --------------------------------------------------------------------------------------------------------


def entry(kind: int, generation: int, code: bytes, header: int = 64) -> bytes:
    start = struct.pack("<HHIQ", kind, 0x101, header, len(code)) + bytes(12) + struct.pack("<I", generation)
    return start.ljust(header, b"\1") + code


def fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return MAGIC + struct.pack("<Q", len(body)) + body


# A library with text around two fat binaries, the bytes of MAGIC by chance, and one that is cut off at its end.
LIBRARY = b"\x7fELF" + b"text" * 9 + fat_binary(
    entry(PROGRAM, 80, b"eighty"), entry(PROGRAM, 90, b"ninety"), entry(PTX, 90, b"source90")
)  # fmt: skip
LIBRARY += MAGIC + struct.pack("<Q", 2**40) + b"data"
LIBRARY += fat_binary(entry(PROGRAM, 70, b"seventy", header=72), entry(PTX, 70, b"source70"), entry(PTX, 120, b"newer"))
LIBRARY += MAGIC + b"\0"


def test_of_each_fat_binary_what_the_gpu_would_run_stays():
    data = bytearray(LIBRARY)
    size, gone = strip(data, 90)
    left = LIBRARY
    for code in (b"eighty", b"source90", b"seventy", b"newer"):  # the second has no program for it, and older PTX
        left = left.replace(code, bytes(len(code)))
    assert bytes(data) == left, "the layout stays, and so does all that is no kernel"
    assert (size, gone) == (6 + 6 + 8 + 7 + 8 + 5, 6 + 8 + 7 + 5)


@pytest.mark.parametrize(("gpu", "runs"), [(90, False), (80, True), (86, True), (75, False)])
def test_a_program_runs_on_gpus_of_its_own_major_version_that_are_not_older(gpu, runs):
    data = bytearray(fat_binary(entry(PROGRAM, 80, b"eighty")))
    strip(data, gpu)
    assert (b"eighty" in data) == runs


def test_libraries_of_an_image_are_stripped_but_for_cufft(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "LEAST", 100)
    for name in ("lib/libcublas.so.12", "lib/libcufft.so.11", "lib/model.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(LIBRARY)
    (tmp_path / "lib/libcublas.so").symlink_to("libcublas.so.12")
    assert [path.name for path, *_ in packing.stripped(tmp_path, 90)] == ["libcublas.so.12"]
    assert b"eighty" not in (tmp_path / "lib/libcublas.so.12").read_bytes()
    assert (tmp_path / "lib/libcufft.so.11").read_bytes() == (tmp_path / "lib/model.bin").read_bytes() == LIBRARY


def test_files_that_two_images_share_are_packed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "LEAST", 4)
    contents = {"a/one": b"same", "b/one": b"same", "b/two": b"else", "b/run": b"same"}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "b/run").chmod(0o755)  # a link would have the mode of the other
    assert packing.link_equal(tmp_path) == 4
    assert {name: (tmp_path / name).read_bytes() for name in contents} == contents
    assert (tmp_path / "a/one").samefile(tmp_path / "b/one")
    assert (tmp_path / "b/run").stat().st_nlink == 1


@pytest.mark.parametrize(("size", "pieces"), [(0, 0), (1, 1), (100, 1), (101, 2), (1000, 10)])
def test_pieces_are_the_stream_and_no_larger_than_they_may_be(tmp_path, size, pieces):
    stream = bytes(number % 251 for number in range(size))
    (tmp_path / "piece-007").write_bytes(b"of an older stream")
    (tmp_path / "first.tar").write_bytes(b"what unpacks it")
    found = write_pieces(io.BytesIO(stream), tmp_path, largest=100)
    assert [path.name for path in found] == [f"piece-{number:03d}" for number in range(pieces)]
    assert sorted(tmp_path.glob("piece-*")) == found
    assert b"".join(path.read_bytes() for path in found) == stream
    assert all(0 < path.stat().st_size <= 100 for path in found)
    sums = dict(reversed(line.split()) for line in (tmp_path / CHECKSUMS).read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in [*found, tmp_path / "first.tar"]
    }


# ---- judging --------------------------------------------------------------------------------------------------------

WANTED = Outcome(says=("^allreduce right", r"rank \d is well"), never=("WRONG",))
LOG = "allreduce right on GPU:0\nstart | rank 1 is well\n"


@pytest.mark.parametrize(
    ("ran", "found"),
    [
        (Ran((0, 0), LOG, 1.0), []),
        (Ran((0, 1), LOG, 1.0), ["found exit code 0, 1, wanted 0, 0"]),
        (Ran((0, None), LOG, 9.0), ["it had not ended after 9 s"]),
        (Ran((0, 0), LOG.replace("is well", "is ill"), 1.0), [r"the log lacks /rank \d is well/"]),
        (Ran((0, 0), LOG + "\nproduct: WRONG on it\n", 1.0), ["the log has 'product: WRONG on it'"]),
        (Ran((137, -9), LOG[10:], 1.0), ["found exit code 137, -9, wanted 0, 0", "the log lacks /^allreduce right/"]),
    ],
    ids=["well", "code", "limit", "lacks", "has", "all"],
)  # fmt: skip
def test_a_case_is_judged_by_codes_limit_and_log(ran, found):
    assert list(complaints(WANTED, ran, commands=2, limit=9.0)) == found


def test_other_codes_may_be_wanted():
    assert not complaints(Outcome(codes=(137, 0)), Ran((137, 0), "", 1.0), commands=2, limit=9.0)
    assert complaints(Outcome(codes=(137, 0)), Ran((0, 0), "", 1.0), commands=2, limit=9.0)


def test_what_was_seen():
    log = "speed 1\nspeed 2\nof a: 3\nof b: 4\nof b: 4\n"
    assert seen((r"speed \d", "nothing", r"^of (.*)"), log) == ("speed 2", "a: 3", "b: 4")


def test_the_table_and_the_exit_code_name_what_failed():
    rows = [
        Row("2.21", "facts", 20.4, seen=("a|b",)),
        Row("2.21", "speed", not_run="needs a GPU"),
        Row("2.21", "SIGTERM", 90.0, complaints=("it had not ended after 90 s",)),
    ]
    assert table(rows).splitlines()[2:] == [
        "| 2.21 | facts | as expected | 20 | a\\|b |",
        "| 2.21 | speed | not run: needs a GPU |  |  |",
        "| 2.21 | SIGTERM | FAILED | 90 | it had not ended after 90 s |",
    ]
    assert verdict(rows) == (1, "failed: SIGTERM")
    assert verdict(rows[:2]) == (0, "all 1 cases that were run came out as expected; 1 were not run")
    assert verdict(rows[1:2]) == (1, "nothing was run")


# ---- the cases ------------------------------------------------------------------------------------------------------


def test_every_case_can_be_run_and_is_asked_for_by_its_name():
    assert len({case.name for case in CASES}) == len(CASES)
    places = {**Here("2.21", gpu=True, output=Path("/x")).places, "scratch": "/x/scratch"}
    for case in CASES:
        assert set(case.images) <= set(ALL)
        for command in case.commands:
            program = Path(command[command[0] == "local"].format(**places))
            assert program.is_file(), f"{case.name}: {program}"
    assert [case.name for case in chosen("2.14", ["SIGTERM"], gpu=True)] == ["SIGTERM"]
    assert {case.name for case in chosen("2.14", [], gpu=True)} < {case.name for case in chosen("2.14", [], gpu=False)}
    with pytest.raises(ValueError, match=r"found the case speeed; wanted some of: .*speed"):
        chosen("2.14", ["speeed"], gpu=False)


def test_a_job_of_entrypoint_local_has_its_options():
    words = local("saves.py", "--hosts 2 --fault 'stop all at 1'", A="b")
    options = ("--hosts", "2", "--fault", "stop all at 1", "--env", "A=b", "--output", "{scratch}/job")
    assert words == ("local", "saves.py", *options)


def a_case(text: str, folder: Path, **fields) -> Case:
    """Return a case whose program is this text."""
    program = folder / "program.py"
    program.write_text(text)
    ends = {"gpu": Outcome(codes=(9,)), "cpu": Outcome(says=("^on -1$",))}
    return Case("a case", ((str(program), "{scratch}"),), **{**ends, **fields})


ON_CPU = "import os; print('on', os.environ['CUDA_VISIBLE_DEVICES'])"


def test_a_case_runs_in_a_folder_of_its_own_and_its_log_is_kept(tmp_path):
    here = Here("2.21", gpu=False, output=tmp_path / "output")
    here.output.mkdir()
    row = run(a_case(ON_CPU, tmp_path, shows=("on .*",)), here)
    assert (row.outcome, row.complaints, row.seen) == ("as expected", (), ("on -1",))
    assert (here.output / "a-case.log").read_text() == "on -1\n"


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"cpu": None}, "needs a GPU"), ({"needs": ("json", "no-such-thing")}, "there is no no-such-thing")],
)
def test_what_cannot_be_run_here_says_why(tmp_path, fields, why):
    row = run(a_case("raise SystemExit(3)", tmp_path, **fields), Here("2.21", gpu=False, output=tmp_path))
    assert (row.not_run, row.outcome, row.complaints) == (why, f"not run: {why}", ())


def test_with_a_gpu_an_image_that_lacks_something_fails(tmp_path):
    row = run(a_case("", tmp_path, needs=("no-such-thing",)), Here("2.21", gpu=True, output=tmp_path))
    assert (row.outcome, row.complaints) == ("FAILED", ("there is no no-such-thing",))


def test_a_case_for_which_no_time_is_left_is_not_run(tmp_path):
    row = run(a_case(ON_CPU, tmp_path), Here("2.21", gpu=False, output=tmp_path, until=0.0))
    assert row.outcome == "not run: no time is left"


def test_a_case_that_exceeds_its_limit_is_ended_with_all_it_has_started(tmp_path, no_leftovers):
    # The folder is in the command line of both, by which the fixture finds them.
    text = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {str(tmp_path)!r}])\n"
        "print('begun', flush=True); time.sleep(60)"
    )
    running_ends, running.ENDS_SECONDS = running.ENDS_SECONDS, 0.2
    try:
        row = run(a_case(text, tmp_path, cpu=Outcome(), limit=0.5), Here("2.21", gpu=False, output=tmp_path))
    finally:
        running.ENDS_SECONDS = running_ends
    assert row.complaints == ("it had not ended after 0.5 s",)


def test_files_are_taken_away_for_a_case_and_come_back(tmp_path, monkeypatch):
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "libgone.so.11").write_text("a library")
    monkeypatch.setattr(running.sysconfig, "get_paths", lambda: {"purelib": str(packages)})
    looks = f"import pathlib; print(*(p.name for p in pathlib.Path({str(packages)!r}).glob('lib*')), 'end')"
    case = a_case(looks, tmp_path, cpu=Outcome(says=("^end$",)), without="libgone*")
    here = Here("2.21", gpu=False, output=tmp_path / "output")
    here.output.mkdir()
    assert run(case, here).complaints == ()
    assert [path.name for path in packages.iterdir()] == ["libgone.so.11"]
    (packages / "libgone.so.11").unlink()
    assert "found no libgone*" in run(case, Here("2.21", gpu=False, output=tmp_path)).complaints[0]


def test_the_command_entrypoint_is_that_of_this_python(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "entrypoint").touch()
    assert running.entrypoint() == [str(tmp_path / "entrypoint")]
