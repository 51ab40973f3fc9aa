"""Test the report in a browser: content, two widths, dark and light, print, hostile records, a large job."""

import re
from html import unescape
from itertools import pairwise

import pytest
from browser import browser_in
from records import GB, HostRecord, trained

from entrypoint.observe.report.make import make

STACK = "pid 9\n\nthread 9\n  libc.so.6:0 read\n  src/train.py:7 f\n  train.py:9 main\n\nthread 10\n  other.py:1 run"
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture
def browser(tmp_path, no_leftovers):
    return browser_in(tmp_path)


def job_of_four(**about) -> dict[str, HostRecord]:
    """Make a job that fills every part of the page."""
    records = {}
    channels = {"train": {"mode": "FastFile", "distribution": "ShardedByS3Key", "files": 20_000, "bytes": 10**9}}
    for number in range(4):
        name = f"algo-{number + 1}"
        used = {
            "gpus": [[0.3, 8 * GB, 16 * GB, 90.0]], "fifos": {"pipe": [40_000, 65_536]}, "net": [10**7, 10**7],
            "peers": {f"algo-{other + 1}": [10**6, 10**6] for other in range(4) if other != number},
        }  # fmt: skip
        record = trained(
            name, 4, seconds=120 if number else 180, step=0.2 if number == 2 else 0.1, process=f"rank {number}",
            role="rank", gpus=1, channels=channels, job="resnet-17", sample=used, **{"mode": "mpi", **about},
        )  # fmt: skip
        for second in range(125, 180) if number else ():
            record.sample(second)
        given = {"sagemaker_program": "train.py", "lr": 0.1, "layers": [64, 32], "extra": None, "note": "long " * 99}
        record.add("described", 1, {"base": "/opt/ml", "resourceconfig": {}, "inputdataconfig": {}, "hyperparameters":
                                    given, "environment": {}, "open_mpi": 4})  # fmt: skip
        installed = "\n".join(["pandas 2.1.4", "tqdm 4.66"])
        versions = [["the code", "e30f56"], ["tensorflow", "2.14.1"], ["horovod", ""],
                    ["installed by requirements", installed]]  # fmt: skip
        record.add("decided", 2, {"number": 1, "began": 0, "at": 0, "actions": [], "quiet": [], "dropped": 0, "events":
                                  [["Prepared", {"flags": [], "fingerprints": versions}]]})  # fmt: skip
        record.add("mark", 60, f"rank {number}", {"what": "checkpoint", "seconds": 8})
        record.add("mark", 90, f"rank {number}", {"what": "evaluation", "seconds": 12})
        record.add("said", 5, f"rank {number} started, pid 17")
        doing = "waits for a lock" if number == 2 else "waits in a collective"
        stack = {"by": "py-spy", "place": "train.py:7 f", "inside": "", "doing": doing, "text": STACK}
        record.add("stacks", 100, f"rank {number}", stack)
        records[name] = record
    return records


def report(tmp_path, records, **options):
    page = tmp_path / "report.html"
    make({name: record.data for name, record in records.items()}, page, **options)
    return page


def words_of(dom: str, section: str) -> str:
    """Return the visible text of a section."""
    inside = re.search(rf'<section id="{section}".*?</section>', dom, re.DOTALL)
    assert inside and "hidden" not in inside[0].partition(">")[0], f"{section} is not there"
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", inside[0])))


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (420, "dark")])
def test_report_page_shows_every_part_at_each_width_and_color_scheme(browser, tmp_path, width, scheme):
    shown = browser.open(report(tmp_path, job_of_four(), price=3.6), width=width, scheme=scheme, pictured=True)
    assert shown.complaints == []
    assert 'data-ready="yes"' in shown.dom
    assert shown.picture and shown.picture.stat().st_size > 20_000
    top = unescape(re.search(r"<header.*?</header>", shown.dom, re.DOTALL)[0])
    assert "resnet-17" in top and "succeeded" in top and "MPI, Horovod" in top and "3 min 06 s" in top
    rules = re.findall(r'<b>([a-z ]+)</b><span class="where">', shown.dom)
    assert set(rules) == {"small files", "gpu starved", "idle", "straggler"}
    assert words_of(shown.dom, "verdicts").count("What to do:") == 4
    assert not re.search(
        r">[^<]*\b(null|undefined|NaN)\b", re.sub(r"<script.*?</script>", "", shown.dom, flags=re.DOTALL)
    )
    timeline = words_of(shown.dom, "timeline")
    phases = ("prepare", "idle: rendezvous", "import", "first step", "train", "evaluation", "checkpoint", "idle", "end")
    assert all(phase in timeline for phase in phases)
    assert all(name in timeline for name in ("algo-1", "algo-4", "rank 3"))
    bill = words_of(shown.dom, "bill")
    assert re.search(r"All \S+ (min|s|h).* 100 % \$0\.\d+", bill) and "of that idle" in bill
    request = words_of(shown.dom, "request")
    assert "lr 0.1 layers [64, 32] extra note long long" in request and "sagemaker_program" not in request
    assert "tensorflow 2.14.1 pandas 2.1.4 tqdm 4.66" in request and not re.search("horovod|e30f56", request)
    assert "by step" in words_of(shown.dom, "training")
    assert {"Steps", "loss"} <= set(re.findall(r"<h3>(\w+)<", shown.dom))
    use = words_of(shown.dom, "use")
    assert all(name in use for name in ("CPUs", "Memory", "GPUs", "Network", "Pipes of channels", "Free on the disk"))
    assert "rank 2" in words_of(shown.dom, "pace") and "slow" in words_of(shown.dom, "pace")
    assert re.search(r"\d MB in all|\d GB in all", words_of(shown.dom, "traffic"))
    assert "ShardedByS3Key" in words_of(shown.dom, "data-read") and "20,000" in words_of(shown.dom, "data-read")
    stack = "src/train.py:7 f train.py:9 main All frames and threads pid 9 thread 9 libc.so.6:0 read"
    assert f"hang rank 2 on algo-3 at 100.0 s: train.py:7 f (waits for a lock) {stack}" in words_of(shown.dom, "stacks")
    assert "rank 1 started" in words_of(shown.dom, "log")
    can_be_read_without_eyes(shown.dom)


def can_be_read_without_eyes(dom: str) -> None:
    """Check what a screen reader needs: order of headings, names of controls, table headers of the bill."""
    levels = [int(level) for level in re.findall(r"<h([1-6])", dom)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    for name in re.findall(r'<select id="(\w+)"', dom):
        assert f'<label for="{name}"' in dom
    bill = re.search(r'<section id="bill".*?</section>', dom, re.DOTALL)[0]
    assert '<th scope="col">' in bill and '<th scope="row">' in bill
    assert 'lang="en"' in dom and "<title>resnet-17: succeeded</title>" in dom


def test_report_page_fits_a_telephone(browser, tmp_path):
    records = job_of_four()
    named = {"validation/top_5_categorical_accuracy_of_the_second_head": 0.5}
    for second in (20, 21):
        later = {"sparse_categorical_crossentropy_of_the_first_head_loss": second / 9}
        records["algo-1"].add("metric", second, "rank 0", {**named, **later})
    page = report(tmp_path, records, price=37.688).read_text("utf-8")
    assert browser.width_in(page, 390, "#request *, #bill .body > .scroll") == 390


def test_report_page_draws_no_chart_for_single_or_unknown_values(browser, tmp_path):
    record = HostRecord(job="smoke")
    record.runs("script", 1.0, 4.6, "script")
    for second in range(1, 6):
        record.sample(second)
    record.add("metric", 4, "script", {"loss": 0.42})
    record.ends(5)
    shown = browser.open(report(tmp_path, {"algo-1": record}))
    assert shown.complaints == []
    assert "loss 0.42 script once, at 4.5 s" in words_of(shown.dom, "training")
    assert "<canvas" not in shown.dom, "nothing changes in this job"
    assert "50 user 6.25 system throughout" in words_of(shown.dom, "use")
    for absent in ("stacks", "pace", "traffic", "data-read", "log"):
        with pytest.raises(AssertionError, match=f"{absent} is not there"):
            words_of(shown.dom, absent)
    timeline, top = words_of(shown.dom, "timeline"), re.search(r"<header.*?</header>", shown.dom, re.DOTALL)[0]
    assert "0 s 0.5 s" in timeline and "5 s" in timeline and "<dd>5 s<" in top


def test_metrics_by_step_follow_each_process_and_its_last_attempt(browser, tmp_path):
    """The second worker is slower and ends later; the first has been further before it was restarted."""
    first = trained("algo-1", 2, seconds=30, process="worker/0", role="worker")
    first.add("metric", 6, "worker/0", {"step": 900.0, "loss": 9.0})
    second = trained("algo-2", 2, seconds=60, step=0.2, process="worker/1", role="worker")
    training = words_of(browser.open(report(tmp_path, {"algo-1": first, "algo-2": second})).dom, "training")
    assert "by step" in training
    assert re.search(r"loss .*worker/0 algo-1 last 0\.802 worker/1 algo-2 last 0\.322", training), training


def test_report_page_summarises_days_and_many_hosts(browser, tmp_path):
    records, end = {}, 3 * 86_400
    for number in range(12):
        name, rank = f"algo-{number + 1}", f"rank {number}"
        record = HostRecord(name, 12, mode="mpi", interval=600.0)
        record.runs("prepare", 1, 40, "prepare")
        record.runs(rank, 60, end - 60, "rank")
        for second in range(660, end, 600):
            record.sample(second, seconds=600.0)
            pace = 0.5 if number == 6 else 1.0 + second / end
            record.add("metric", second, rank, {"step": second * pace, "loss": 1e5 / second})
        record.ends(end)
        records[name] = record
    page = report(tmp_path, records, price=1.5)
    assert page.stat().st_size < 3_000_000
    shown = browser.open(page)
    assert shown.complaints == []
    top = re.search(r"<header.*?</header>", shown.dom, re.DOTALL)[0]
    assert "<dd>3 d 00 h<" in top and "<dd>864 h<small>$1,296.00 at $1.50 an hour<" in top
    timeline = words_of(shown.dom, "timeline")
    assert all(word in timeline for word in ("16 h", "1 d", "2 d 8 h", "algo-12: train"))
    assert "rank 3:" not in timeline, "each host has one row, until the reader asks for more"
    training = words_of(shown.dom, "training")
    assert "lowest: rank 6 algo-7" in training and "median of 12" in training and "rank 3 algo-4" not in training


def test_printed_report_shows_folded_parts(browser, tmp_path):
    page = report(tmp_path, job_of_four())
    folded = "document.querySelectorAll('details:not([open])').length"
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    probe = f"""<script>
      addEventListener("beforeprint", () => console.log("folded", {folded}));
      matchMedia("print").addEventListener("change", each => each.matches && console.log("too wide", {wide}));
    </script></body>"""
    page.write_text(page.read_text("utf-8").replace("</body>", probe), "utf-8")
    sheets, printed = browser.print(page)
    assert 1 < sheets < 9
    assert any("folded 0" in line for line in printed) and any("too wide false" in line for line in printed), printed


def test_report_of_a_job_that_succeeded_repeats_the_launchers_warnings(browser, tmp_path):
    record = trained()
    for words in ("script ended: exit code 0", "warning: /opt/ml/model is empty", "warning: /opt/ml/model is empty"):
        record.add("said", 65, words)
    verdicts = words_of(browser.open(report(tmp_path, {"algo-1": record})).dom, "verdicts")
    assert "The rules found no problems; the launcher warned: warning: /opt/ml/model is empty Thresholds" in verdicts


def test_report_of_hosts_that_trained_alone_is_not_green(browser, tmp_path):
    first, second = trained("algo-1", 2), trained("algo-2", 2)
    first.add(
        "distributed", 60, False, {"since": first.lines[0][1] + 5, "words": "every host trains alone", "advice": "a"}
    )
    shown = browser.open(report(tmp_path, {"algo-1": first, "algo-2": second}))
    assert '<span class="badge failed">succeeded, trained apart</span>' in shown.dom and shown.complaints == []
    assert "The hosts trained apart since 5 s after the start" in words_of(shown.dom, "verdicts")


def test_a_failed_job_shows_its_cause_first(browser, tmp_path):
    record = trained()
    cause = {"host": "algo-1", "process": "script", "what": "exit code 1", "error": "ValueError: no such row",
             "details": '  File "train.py", line 3\n    rows[7]'}  # fmt: skip
    record.lines = [line for line in record.lines if line[0] != "outcome"]
    record.ends(66, "failed", 1, cause)
    shown = browser.open(report(tmp_path, {"algo-1": record}))
    top = unescape(re.search(r"<header.*?</header>", shown.dom, re.DOTALL)[0])
    assert "see what script printed last, in the log of algo-1." in top and ">Traceback</summary>" in top
    assert "failed, exit code 1" in top and "script on algo-1: exit code 1" in top and "ValueError: no such row" in top
    assert shown.complaints == []
    assert "No other problems found." in words_of(shown.dom, "verdicts")


def test_report_page_names_missing_and_broken_records(browser, tmp_path):
    page = tmp_path / "report.html"
    make({"algo-1": b"\x1f\x8bnothing of the kind", "algo-2": trained("algo-2", 3).data}, page)
    shown = browser.open(page)
    assert shown.complaints == [] and 'data-ready="yes"' in shown.dom
    assert "the record of algo-1: a part of it is broken" in shown.dom
    assert "no record of algo-3" in shown.dom


def test_report_without_records_states_that(browser, tmp_path):
    make({}, tmp_path / "report.html")
    shown = browser.open(tmp_path / "report.html")
    assert shown.complaints == [] and "There are no records to judge." in shown.dom


def test_report_escapes_html_in_texts_of_the_job(browser, tmp_path):
    """A hostile record has HTML in each of its texts."""
    record = trained(process=HOSTILE[:90], host=HOSTILE, job=HOSTILE, mode=HOSTILE, instance_type=HOSTILE)
    record.lines = [line for line in record.lines if line[0] != "outcome"]
    record.add("said", 5, HOSTILE)
    record.add("metric", 9, HOSTILE, {HOSTILE: 1.0, "loss": float("nan")})
    record.add("stacks", 9, HOSTILE, dict.fromkeys(("by", "place", "inside", "text"), HOSTILE))
    record.add("host", 1, {"channels": {HOSTILE: {"mode": HOSTILE, "files": 1, "bytes": 2}}})
    record.ends(66, "failed", 78, dict.fromkeys(("host", "process", "what", "error"), HOSTILE))
    page = tmp_path / "report.html"
    make({f"algo-1{HOSTILE}": record.data}, page)
    shown = browser.open(page)
    assert shown.complaints == [] and 'data-ready="yes"' in shown.dom
    assert "<title>&lt;/script&gt;" in shown.dom, "the title is the job's own, and nobody has set it"
    assert "<img" not in shown.dom.split("<script")[0] and shown.dom.count("<script") == 3
    assert words_of(shown.dom, "log").count("</script>") >= 1
    assert "correct the setting; <code>entrypoint doctor</code> checks it" in shown.dom


def test_report_of_a_failed_preparation_does_not_miss_metrics(browser, tmp_path):
    record = HostRecord()
    record.runs("prepare", 0.2, 1.5, "prepare", "exit code 65")
    record.ends(2, "failed", 65, {"host": "algo-1", "process": "prepare", "what": "exit code 65", "error": "x"})
    verdicts = words_of(browser.open(report(tmp_path, {"algo-1": record})).dom, "verdicts")
    assert "No other problems found." in verdicts and "No steps or metrics found" not in verdicts
