"""Test the file of the report, the sources of its records, and `entrypoint report`."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from builders import write_files
from records import HostRecord, trained, write

from entrypoint.cli import main
from entrypoint.observe.monitor import reporting
from entrypoint.observe.monitor.record_header import count_files
from entrypoint.observe.report.make import as_script, make, told_in

HOSTILE = "</script><script>alert(1)</script><!-- & \u2028 ]]>"
ILL = {"free": 5e9}  # of a disk of 100 GB


def archive(*members: tuple[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return content.getvalue()


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Run `entrypoint report` in an empty folder; return (exit code, stdout, stderr)."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*words: object) -> tuple[int, str, str]:
        code = main.run(["report", *map(str, words)], {})
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def data_of(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    return json.loads(found[1])


def of_worker(name: str = "algo-1", seconds: int = 60) -> HostRecord:
    """Return the record of a worker, without the job's outcome."""
    made = trained(name, 2, process="worker/0", role="worker", seconds=seconds)
    made.drop("outcome")
    return made


def ended(kind: str, code: int, *, sigterm: bool = False, said: str = "", **cause: str) -> list[HostRecord]:
    made = of_worker()
    if sigterm:
        made.add("phase", 60, "stopping")
    if said:
        made.add("said", 30, said)
    made.ends(66, kind, code, {**CAUSE, **cause} if cause else None)
    return [made]


def coordinator_lost() -> list[HostRecord]:
    """Return a truncated record of the coordinator, and one of a host that found the coordinator lost."""
    other = of_worker("algo-2")
    other.ends(70, "failed", 69, {"host": "algo-1", "process": "", "what": "does not answer", "error": ""})
    return [of_worker(seconds=20), other]


CAUSE = {"host": "algo-2", "process": "worker/0", "what": "exit code 1", "error": "ValueError:\nbad \x1b[1m"}
AGAIN = "attempt 0 failed: algo-2 worker/1 (killed by SIGKILL)"
ITS_OUTPUT = ".*; after 66 s; see what worker/0 printed last"
ENDINGS = {  # how a job ended, and what the report says first
    "failed": (
        lambda: ended("failed", 1, host="algo-2"),
        r"failed: algo-2 worker/0 \(exit code 1\): ValueError: bad  \[1m; after 66 s; "
        r"see what worker/0 printed last, in the log of algo-2$",
    ),
    # A script may end with a code that the launcher uses, too.
    "a script's 65": (lambda: ended("failed", 65, what="exit code 65"), ITS_OUTPUT),
    "a script's 78": (lambda: ended("failed", 78, what="exit code 78, out of memory"), ITS_OUTPUT),
    "prepare's 65": (
        lambda: ended("failed", 65, process="prepare", what="exit code 65"),
        ".*; after 66 s; correct the code or its requirements",
    ),
    "hung": (lambda: ended("failed", 72, what="no progress"), ".*; after 66 s; see the stacks of the hang"),
    "killed": (
        lambda: ended("failed", 137, what="killed by SIGKILL"),
        ".*; after 66 s; if its host's memory was full, .*, the kernel killed it; else somebody did$",
    ),
    "configuration": (
        lambda: ended("failed", 78, process="", what="configuration"), ".*; after 66 s; correct the setting",
    ),
    "the coordinator lost": (
        coordinator_lost, r"failed: algo-1 \(does not answer\); after 70 s; start the job again, from",
    ),
    "unknown": (
        lambda: [of_worker(), of_worker("algo-2", seconds=20)],
        r".*end unknown: the last sign of life came at 2027-.* UTC from algo-1, 65 s after the start; records that "
        r"end earlier: algo-2 \(40 s before\); launchers were killed",
    ),
    "stopped": (lambda: ended("stopped", 143, sigterm=True), "stopped: SIGTERM after 60 s, as by StopTrainingJob"),
    "saved": (lambda: ended("succeeded", 0, sigterm=True), ".*SIGTERM after 60 s; all scripts then ended with 0"),
    "restarted": (
        lambda: ended("succeeded", 0, said=AGAIN),
        rf"restarted: it succeeded after 66 s; {re.escape(AGAIN)} \(after 30 s\); correct what failed: each restart is "
        "paid for$",
    ),
}  # fmt: skip


class TestPage:
    def test_report_page_is_one_file(self, tmp_path):
        make({"algo-1": trained(job="my-job").data}, tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text("utf-8")
        assert "<title>my-job: succeeded</title>" in page and "var uPlot=" in page and "Leon Sorokin" in page
        assert not re.findall(r"<(?:link|img|iframe)|src=|@import", page.partition("<body>")[0].lower())
        assert "default-src 'none'" in page and page.count("<script") == 3 == page.count("</script>")
        assert not list(tmp_path.glob(".*"))

    def test_job_text_cannot_close_the_pages_script_tag(self, tmp_path):
        record = trained(job=HOSTILE)
        record.add("said", 3, HOSTILE)
        make({"algo-1": record.data}, tmp_path / "report.html")
        page = tmp_path / "report.html"
        assert page.read_text("utf-8").count("</script>") == 3
        assert data_of(page)["job"]["name"] == HOSTILE
        assert [3, 0, HOSTILE] in data_of(page)["said"]
        assert json.loads(as_script({HOSTILE: "\ud800"})) == {HOSTILE: "\ud800"}

    def test_worst_verdicts_are_readable_from_page_head(self, tmp_path):
        lines = make({"algo-1": trained(sample=ILL).data}, tmp_path / "report.html")
        assert lines == told_in(tmp_path / "report.html", "verdict")
        assert lines[0].startswith("warning: disk: algo-1: 5 GB of 100 GB are free at the end (5 %); keep fewer")
        assert told_in(tmp_path / "none.html", "verdict") == []

    def test_each_verdict_is_one_line(self, tmp_path):
        channels = {"a\x1b[31m\nb": {"files": 10**6, "bytes": 10}}
        (line,) = make({"algo-1": trained(channels=channels).data}, tmp_path / "report.html")
        assert line.isprintable() and "channel a [31m b has" in line

    def test_page_size_does_not_grow_with_job_length(self, tmp_path):
        sizes = []
        for seconds in (1000, 8000):
            make({"algo-1": trained(seconds=seconds, loss=0.9999).data}, tmp_path / "report.html")
            sizes.append((tmp_path / "report.html").stat().st_size)
        assert sizes[1] < 1.2 * sizes[0]


class TestCommand:
    @pytest.mark.parametrize("name", ENDINGS)
    def test_job_outcome_comes_first_on_the_page(self, command, tmp_path, name):
        records, wanted = ENDINGS[name]
        out = command(write(tmp_path / "record", *records()))[1].splitlines()
        line = next((line for line in out if re.match(wanted, line)), "")
        assert line, out
        assert out[:1] == told_in(Path("report.html"), "ending") and (line == out[0] or name == "unknown")

    def test_last_output_of_first_failed_process_is_on_the_page(self, command, tmp_path):
        first, second = of_worker(), of_worker("algo-2")
        second.add("lines", 65, "worker/0", ["Traceback ...", HOSTILE])
        first.ends(66, "failed", 1, CAUSE)
        assert "No other problems found" in command(write(tmp_path / "record", first, second))[1]
        assert data_of(Path("report.html"))["ending"]["output"] == ["Traceback ...", HOSTILE]
        first.ends(66, "failed", 1, {**CAUSE, "details": "File ...\nValueError"})
        command(write(tmp_path / "record", first, second))
        assert data_of(Path("report.html"))["ending"]["output"] == ["File ...", "ValueError"]

    def test_lines_of_one_moment_stay_in_order(self, command, tmp_path):
        record = of_worker()
        for words in ("second  process", "7.5  worker/0"):
            record.add("said", 5, words)
        command(write(tmp_path / "record", record))
        assert [line[2] for line in data_of(Path("report.html"))["said"]] == ["second  process", "7.5  worker/0"]

    @pytest.mark.parametrize(
        "below",
        ["", "record", "data/record", "output/data/record", "ml/output/data/record", "algo-1/ml/output/data/record"],
    )
    def test_command_accepts_record_folder_or_its_parent(self, command, tmp_path, below):
        write(tmp_path / "job" / below, trained(sample=ILL))
        code, out, _ = command(tmp_path / "job")
        assert code == 0 and out.splitlines()[0].startswith("warning: disk") and "report   report.html" in out
        assert data_of(Path("report.html"))["job"]["outcome"]["kind"] == "succeeded"

    def test_command_reads_archive_without_unpacking(self, command, tmp_path):
        members = [("record/algo-1.jsonl.gz", trained("algo-1", 2).data), ("../../record/algo-2.jsonl.gz", b"x")]
        (tmp_path / "output.tar.gz").write_bytes(archive(*members, ("model.h5", b"...")))
        assert command(tmp_path / "output.tar.gz")[0] == 0
        assert [path.name for path in Path().iterdir()] == ["report.html"] and not list(tmp_path.glob("record"))
        assert [host["name"] for host in data_of(Path("report.html"))["hosts"]] == ["algo-1", "algo-2"]

    def test_command_reads_truncated_archive(self, command, tmp_path):
        whole = archive(("record/algo-1.jsonl.gz", trained().data), ("rest", bytes(range(256)) * 4000))
        (tmp_path / "output.tar.gz").write_bytes(whole[: len(whole) * 2 // 3])
        code, out, _ = command(tmp_path / "output.tar.gz")
        assert code == 0 and "No problems found" in out

    def test_price_comes_from_the_command_or_the_job(self, command, tmp_path):
        write(tmp_path / "record", trained(price=18.0))
        for words, price in ((["--price", "36"], 36), ([], 18)):
            assert command(tmp_path / "record", *words, "--output", tmp_path / "mine.html")[0] == 0
            bill = data_of(tmp_path / "mine.html")["bill"]
            assert bill["price"] == price and bill["total"] == 66

    def test_job_or_command_may_set_thresholds(self, command, tmp_path):
        write(tmp_path / "record", trained(sample=ILL, rules="disk=0.01"))
        assert "disk" not in command(tmp_path / "record")[1]
        assert "warning: disk" in command(tmp_path / "record", "--rules", "disk=0.2,idle=off")[1]

    @pytest.mark.parametrize(
        ("words", "wanted"),
        [
            (["nowhere"], "there is no nowhere; wanted a job's output folder"),
            (["."], "there are no records (HOST.jsonl.gz) in .; a job writes them to output/data/record if"),
            (["model.tar.gz"], "there are no records (record/HOST.jsonl.gz) in model.tar.gz"),
            (["text.gz"], "text.gz cannot be read as an archive"),
            (["s3://bucket"], "is not an object in S3; wanted s3://BUCKET/"),
            (["job", "--price", "cheap"], "--price is 'cheap'; wanted USD of a host for an hour"),
            (["job", "--price", "-1"], "--price is '-1'"),
            (["job", "--rules", "stragler=2"], "did you mean straggler?"),
            (["job", "--output", "no/such/folder.html"], "--output no/such/folder.html cannot be written"),
        ],
    )
    def test_wrong_argument_gives_one_error_line(self, command, words, wanted):
        Path("model.tar.gz").write_bytes(archive(("1/saved_model.pb", b"")))
        Path("text.gz").write_bytes(b"no archive")
        if "job" in words:
            write(Path("job/record"), trained())
        code, _, err = command(*words)
        assert code == 78 and wanted in err and err.count("\n") == 1

    def test_s3_path_without_boto3_names_the_package(self, command, monkeypatch):
        monkeypatch.setitem(sys.modules, "boto3", None)
        code, _, err = command("s3://bucket/output.tar.gz")
        assert code == 78 and "takes boto3, which is not installed: pip install 'sagemaker-tf-entrypoint[aws]'" in err


class TestAtTheEnd:
    def test_report_needs_only_python(self, tmp_path):
        write(tmp_path / "record", trained(sample=ILL))
        root, places = Path(reporting.__file__).parents[3], (str(tmp_path / "record"), str(tmp_path / "report.html"))
        code = f"import sys; sys.path.append({str(root)!r})\nfrom pathlib import Path\n"
        code += "from entrypoint.observe.monitor.reporting import make_report\n"
        code += f"print(make_report(*map(Path, {places}), within=120))"
        command = [sys.executable, "-I", "-S", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path, env={})
        assert done.stdout.startswith("['report: warning: disk") and done.stderr == ""
        assert "</html>" in (tmp_path / "report.html").read_text("utf-8")

    def test_page_without_records_states_their_absence(self, tmp_path):
        assert reporting.make_report(tmp_path / "none", tmp_path / "report.html", within=120) == []
        assert data_of(tmp_path / "report.html")["hosts"] == []

    def test_failed_fork_gives_one_line_and_leaks_no_file(self, tmp_path, monkeypatch):
        def refuse():
            raise BlockingIOError("no process is left")

        monkeypatch.setattr("os.fork", refuse)
        before = os.listdir("/proc/self/fd")  # noqa: PTH208
        (line,) = reporting.make_report(tmp_path, tmp_path / "report.html")
        assert line.startswith("no report.html: no process is left")
        assert os.listdir("/proc/self/fd") == before  # noqa: PTH208

    def test_unwritable_report_gives_one_line(self, tmp_path):
        (said,) = reporting.make_report(tmp_path, tmp_path / "no/folder/report.html", within=120)
        assert said.startswith("no report.html: FileNotFoundError") and "Traceback" not in said

    def test_waiting_for_the_report_is_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr("entrypoint.observe.report.make.make", lambda *_, **__: time.sleep(600))
        write(tmp_path / "record", trained())
        began = time.monotonic()
        (said,) = reporting.make_report(tmp_path / "record", tmp_path / "report.html", within=0.001)
        assert said.startswith("no report.html: it was not made within 0.001 s")
        assert time.monotonic() - began < 60 and not (tmp_path / "report.html").exists()


def test_channel_files_are_counted_up_to_a_limit(tmp_path, monkeypatch):
    assert count_files(tmp_path / "none") == {"files": 0, "bytes": 0}
    write_files(tmp_path, {f"part-{number % 3}/{number}.bin": bytes(10) for number in range(12)})
    (tmp_path / "again").symlink_to(tmp_path)  # a circle
    assert count_files(tmp_path) == {"files": 12, "bytes": 120}
    monkeypatch.setattr("entrypoint.observe.monitor.record_header.MOST_FILES", 5)
    assert count_files(tmp_path) == {"files": 5, "bytes": 50, "more": True}


def test_exchange_between_two_hosts_is_counted_once(tmp_path):
    """Each host counts at its own end. If one count is missing, that of the other host is used."""
    one, two = trained("algo-1", 2), trained("algo-2", 2)
    one.sample(50.5, seconds=0.1, peers={"algo-2": [100, 700]})
    two.sample(50.5, seconds=0.1, peers={"algo-1": [690, 0]})
    make({"algo-1": one.data, "algo-2": two.data}, tmp_path / "report.html")
    assert data_of(tmp_path / "report.html")["matrix"] == [[0, 1, 700], [1, 0, 100]]


def test_host_without_processes_is_on_the_page(tmp_path):
    make({"algo-1": trained("algo-1", 2).data, "algo-2": HostRecord("algo-2", 2).data}, tmp_path / "report.html")
    assert [host["spans"] for host in data_of(tmp_path / "report.html")["hosts"]][1] == []
