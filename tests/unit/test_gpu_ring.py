"""Test the parts of the GPU ring (tests/gpu) that need no GPU: packing, running and judging cases."""

import hashlib
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import pytest
from gpu import packing, running
from gpu.cases import ALL, CASES, Case, chosen
from gpu.judge import Outcome, Ran, Row, complaints, seen, table, verdict
from gpu.packing import MAGIC, strip
from gpu.running import Here, run

PTX, PROGRAM = 1, 2


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


def test_stripping_keeps_the_code_run_by_the_gpu():
    data = bytearray(LIBRARY)
    size, gone = strip(data, 90)
    left = LIBRARY
    for code in (b"eighty", b"source90", b"seventy", b"newer"):  # the second has no program for it, and older PTX
        left = left.replace(code, bytes(len(code)))
    assert bytes(data) == left, "the layout stays, and so does all that is no kernel"
    assert (size, gone) == (6 + 6 + 8 + 7 + 8 + 5, 6 + 8 + 7 + 5)
    older = {generation: bytearray(fat_binary(entry(PROGRAM, 80, b"eighty"))) for generation in (90, 80, 86, 75)}
    for generation, library in older.items():
        strip(library, generation)
    assert [generation for generation, library in older.items() if b"eighty" in library] == [80, 86]


def test_all_image_libraries_except_cufft_are_stripped(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "LEAST", 100)
    for name in ("lib/libcublas.so.12", "lib/libcufft.so.11", "lib/model.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(LIBRARY)
    (tmp_path / "lib/libcublas.so").symlink_to("libcublas.so.12")
    assert [path.name for path, *_ in packing.stripped(tmp_path, 90)] == ["libcublas.so.12"]
    assert b"eighty" not in (tmp_path / "lib/libcublas.so.12").read_bytes()
    assert (tmp_path / "lib/libcufft.so.11").read_bytes() == (tmp_path / "lib/model.bin").read_bytes() == LIBRARY


@pytest.mark.skipif(not shutil.which("hardlink"), reason="needs hardlink, of util-linux")
def test_files_shared_by_two_images_are_packed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "LEAST", 4)
    contents = {"a/one": b"same", "b/one": b"same", "b/two": b"else", "b/run": b"same"}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "b/run").chmod(0o755)  # a link would have the mode of the other
    packing.link_equal(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in contents} == contents
    assert (tmp_path / "a/one").samefile(tmp_path / "b/one")
    assert (tmp_path / "b/run").stat().st_nlink == 1


@pytest.mark.parametrize(("size", "pieces"), [(0, 0), (100, 1), (101, 2)])
def test_pieces_join_to_the_stream_within_size_limit(tmp_path, size, pieces):
    stream = bytes(number % 251 for number in range(size))
    (tmp_path / "piece-007").write_bytes(b"of an older stream")
    (tmp_path / "first.tar").write_bytes(b"what unpacks it")
    with tempfile.TemporaryFile() as file:
        file.write(stream)
        file.seek(0)
        found = packing.write_pieces(file, tmp_path, largest=100)
    assert [path.name for path in found] == [f"piece-{number:03d}" for number in range(pieces)]
    assert sorted(tmp_path.glob("piece-*")) == found
    assert b"".join(path.read_bytes() for path in found) == stream
    sums = dict(reversed(line.split()) for line in (tmp_path / packing.CHECKSUMS).read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in [*found, tmp_path / "first.tar"]
    }


WANTED = Outcome(says=("^allreduce right", r"rank \d is well"), never=("WRONG",), codes=(0, 137))
LOG = "allreduce right on GPU:0\nstart | rank 1 is well\n"


@pytest.mark.parametrize(
    ("ran", "found"),
    [
        (Ran((0, 137), LOG, 1.0), []),
        (Ran((0, None), LOG, 9.0), ["it had not ended after 9 s"]),
        (Ran((0, 137), LOG + "\nproduct: WRONG on it\n", 1.0), ["the log has 'product: WRONG on it'"]),
        (Ran((137, -9), LOG[10:], 1.0), ["found exit code 137, -9, wanted 0, 137", "the log lacks /^allreduce right/"]),
    ],
    ids=["well", "limit", "has", "code, lacks"],
)
def test_gpu_case_is_judged_by_codes_time_limit_and_log(ran, found):
    assert list(complaints(WANTED, ran, commands=2, limit=9.0)) == found


def test_table_shows_observations_and_exit_code_shows_failure():
    rows = [
        Row("2.21", "facts", 20.4, seen=seen((r"speed \d", r"^of (.*)"), "speed 1\nspeed 2\nof a|b: 4\nof a|b: 4\n")),
        Row("2.21", "speed", not_run="needs a GPU"),
        Row("2.21", "SIGTERM", 90.0, complaints=("it had not ended after 90 s",)),
    ]
    assert table(rows).splitlines()[2:] == [
        "| 2.21 | facts | as expected | 20 | speed 2; a\\|b: 4 |",
        "| 2.21 | speed | not run: needs a GPU |  |  |",
        "| 2.21 | SIGTERM | FAILED | 90 | it had not ended after 90 s |",
    ]
    assert verdict(rows) == (1, "failed: SIGTERM")
    assert verdict(rows[:2]) == (0, "all 1 cases that were run came out as expected; 1 were not run")
    assert verdict(rows[1:2]) == (1, "nothing was run")


def test_every_gpu_case_has_a_program_and_unique_name():
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


ON_CPU = "import os; print('on', os.environ['CUDA_VISIBLE_DEVICES'])"
# Its folder is in the command line of both processes, by which no_leftovers finds them.
ENDLESS = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]]); time.sleep(60)"
)
WELL = Outcome(says=("^on -1$",))


@pytest.mark.parametrize(
    ("text", "fields", "gpu", "outcome"),
    [
        (ON_CPU, {}, False, "as expected"),
        (ON_CPU, {"cpu": None}, False, "not run: needs a GPU"),
        (ON_CPU, {"needs": ("json", "no-such-thing")}, False, "not run: there is no no-such-thing"),
        (ON_CPU, {"limit": 0.0}, False, "not run: no time is left"),
        (ON_CPU, {"needs": ("no-such-thing",)}, True, "FAILED: there is no no-such-thing"),
        (ENDLESS, {"limit": 0.5}, False, r"FAILED: it had not ended after 0.5 s; the log lacks /^on -1$/"),
    ],
    ids=["well", "a GPU", "lacks", "late", "an image for GPUs lacks", "endless"],
)
def test_gpu_case_runs_or_reports_why_not(tmp_path, monkeypatch, no_leftovers, text, fields, gpu, outcome):
    monkeypatch.setattr(running, "ENDS_SECONDS", 0.2)
    (tmp_path / "program.py").write_text(text)
    case = Case("a case", ((str(tmp_path / "program.py"), "{scratch}"),), **{"gpu": WELL, "cpu": WELL, **fields})
    row = run(case, Here("2.21", gpu=gpu, output=tmp_path))
    assert row.outcome + ": " * bool(row.complaints) + "; ".join(row.complaints) == outcome
    if outcome == "as expected":
        assert (tmp_path / "a-case.log").read_text() == "on -1\n"


def test_files_hidden_for_a_gpu_case_are_restored(tmp_path, monkeypatch):
    (tmp_path / "libgone.so.11").write_text("a library")
    monkeypatch.setattr(running.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    with running.taken_away("libgone*"):
        assert [path.name for path in tmp_path.iterdir()] == ["away-libgone.so.11"]
    assert [path.name for path in tmp_path.iterdir()] == ["libgone.so.11"]
    with pytest.raises(FileNotFoundError, match=r"found no nosuch\*"), running.taken_away("nosuch*"):
        pass


def test_entrypoint_command_is_that_of_this_python(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "entrypoint").touch()
    assert running.entrypoint() == [str(tmp_path / "entrypoint")]
