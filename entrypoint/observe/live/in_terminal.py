"""Show the live page's contents in a terminal with Rich: `entrypoint top`."""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError, imported, printable
from entrypoint.base.wording import duration, size
from entrypoint.observe.live import serve
from entrypoint.observe.live.view import View
from entrypoint.record import lines
from entrypoint.record.find import ENDING
from entrypoint.record.lines import WRONG
from entrypoint.record.read import RecordTail

AGAIN_SECONDS = 1.0  # seconds between two looks
FIRST_SECONDS = 8.0  # seconds until the first state has to be there: the monitor writes it when it looks next
SHOWN = (
    lines.HostLine, lines.ProcessLine, lines.EndedLine, lines.PhaseLine, lines.SampleLine, lines.Metric, lines.Lines,
    lines.Still, lines.Said, lines.Distributed, lines.OutcomeLine,
)  # fmt: skip
WIDE = 110  # columns of a terminal, from which all columns of the table have room
PATIENCE_SECONDS = 5.0  # seconds for an answer
MOST_BYTES = 64 << 20  # bytes of one
CONTROL_PORT = "7979"  # unless ENTRYPOINT_CONTROL_PORT is set
BASE = Path("/opt/ml")
Source = Callable[[], dict[str, Any]]


def source(where: str, environment: Mapping[str, str]) -> Source:
    """Return a function that gets the state of a job: at an address, in an output folder, or on this host.

    Raise ConfigError if there can be no job.
    """
    port, token = environment.get("ENTRYPOINT_CONTROL_PORT") or CONTROL_PORT, environment.get("ENTRYPOINT_TOKEN", "")
    if not where and (BASE / "input/config/resourceconfig.json").exists():
        where = f"http://localhost:{port}"
    if where.startswith(("http://", "https://")):
        address = where.rstrip("/") + serve.LIVE
        return lambda: _state(lambda: _ask(address, token), f"no live page of a job at {address}")
    folder = Path(where)
    if not where:
        runs = [path for path in Path("out").glob("*") if path.is_dir()]
        if not runs:
            raise ConfigError(f"there is no job in out/ and none in {BASE}; wanted its folder, or http://HOST:PORT")
        folder = max(runs, key=lambda path: path.stat().st_mtime)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is not a folder; wanted the output folder of `entrypoint local`, or http://HOST:PORT"
        )
    job = _Folder(sorted(folder.glob("*/ml/output/data/record")) or [folder])
    return lambda: _state(job.state, f"{folder} shows no job")


class _Folder:
    """Get the state of a job of this machine from its records."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders, self._view, self._tails = folders, View(), dict[Path, RecordTail]()

    def state(self) -> bytes:
        """Return the state as JSON, without hosts if there is no record yet."""
        view = self._view
        largest: dict[str, Path] = {}  # the coordinator has the records of all hosts, unless it was lost
        for path in (path for folder in self._folders for path in folder.glob(f"*{ENDING}")):
            if path.name not in largest or path.stat().st_size > largest[path.name].stat().st_size:
                largest[path.name] = path
        for name, path in largest.items():
            for line in self._tails.setdefault(path, RecordTail(path)).lines(SHOWN):
                with suppress(*WRONG):
                    view.note(name.removesuffix(ENDING), line)
        state = view.state(view.last)
        state["outcome"] = state["outcome"] or view.others
        record = largest.get(f"{state['coordinator']}{ENDING}")
        if record and not state["outcome"]:
            serve.state(record.parent)  # the monitors write every second while somebody looks
        # A job without an outcome runs as long as its records grow.
        silent = not state["outcome"] and not 0 <= lines.now() - view.last < lines.ALIVE_SECONDS
        cause = (state["outcome"] or {}).get("cause") or {}
        for host in state["hosts"] if state["outcome"] else ():
            if host["phase"] != "ended":
                is_lost = cause.get("host") == host["name"] and not cause.get("process")
                host["phase"] = "lost" if is_lost else "no end recorded"
                for process in host["processes"]:
                    process["ended"] = process["ended"] or "no end recorded"
        return json.dumps({**state, "silent": silent}).encode()


def _state(get: Callable[[], bytes], why_not: str) -> dict[str, Any]:
    """Return a state that can be drawn. If there is none, raise ConfigError; `why_not` begins its text."""
    try:
        state: dict[str, Any] = json.loads(get())
        _headline(state), _rows(state), _said(state)
        return state
    except (OSError, http.client.HTTPException) as error:
        raise ConfigError(f"{why_not}: {error}") from None
    except WRONG:
        raise ConfigError(f"{why_not}: what answers is not a job's control port") from None


def _ask(address: str, token: str) -> bytes:
    request = urllib.request.Request(address, headers={"X-Entrypoint-Token": token} if token else {})
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy cannot reach a host of the job
    try:
        with directly.open(request, timeout=PATIENCE_SECONDS) as answer:
            return bytes(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise ConfigError(f"{address} answered {error.code}: {error.read(1000).decode(errors='replace')}") from None


def show(state_of: Source, once: bool) -> int:
    """Show the job once, or until it ends or Ctrl-C is pressed; return 0. Raise ConfigError without a job or Rich."""
    console, live = (imported(f"rich.{name}", "tools", "`entrypoint top`") for name in ("console", "live"))
    state, until = state_of(), time.monotonic() + FIRST_SECONDS
    while not state["hosts"]:
        if time.monotonic() > until:
            raise ConfigError(
                f"no data of this job for {FIRST_SECONDS:g} s: it has ended, or ENTRYPOINT_MONITOR is false"
            )
        time.sleep(AGAIN_SECONDS / 4)
        state = state_of()
    terminal = console.Console()
    if once or not sys.stdout.isatty():
        terminal.print(_drawn(state, terminal.width))
        return 0
    with live.Live(_drawn(state, terminal.width), screen=True, auto_refresh=False) as screen:
        try:
            while not state["outcome"]:
                time.sleep(AGAIN_SECONDS)
                state = state_of()
                screen.update(_drawn(state, terminal.width), refresh=True)
        except KeyboardInterrupt:
            return 0
        except ConfigError:  # the job has ended, or cannot be reached any more
            pass
    terminal.print(_drawn(state, terminal.width))
    return 0


def _drawn(state: Mapping[str, Any], width: int) -> Any:
    """Return a headline of the job, its cause of failure, a table of processes, and the launchers' last log lines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    names = ("host", "phase", "CPU", "memory", "net in/out", "process", "CPUs", "memory", "steps/s", "said")
    rows = _rows(state)
    # In a narrow terminal there is no room for what hosts use, and none for a number in several lines.
    room = [place for place in range(len(names)) if width >= WIDE or place not in (2, 3, 4)]
    shown = [place for place in room if any(row[place] for row in rows)]
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    for name in (names[place] for place in shown):
        justify: Any = "right" if name in ("CPU", "CPUs", "memory", "steps/s") else "left"
        table.add_column(
            name, justify=justify, no_wrap=name != "said", overflow="fold" if name == "said" else "ellipsis"
        )
    for row in rows:
        table.add_row(*(Text(row[place]) for place in shown))
    apart = f"error: the hosts do not train together: {printable(found)}" if (found := state.get("apart")) else ""
    cause = (state["outcome"] or {}).get("cause")
    failed = printable(lines.headline(cause)) if cause else ""
    red = [Text(words, style="bold red") for words in (failed, apart) if words]
    return Group(Text(_headline(state), style="bold"), *red, Text(""), table, Text(""), Text(_said(state), style="dim"))


def _rows(state: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for host in state["hosts"]:
        first = [host["name"], host["phase"], "", "", ""]
        if "memory" in host:
            first[2:] = f"{host['cpu']:.0%}", size(host["memory"][0]), "/".join(map(size, host["net"]))
        for process in host["processes"] or [None]:
            rows.append([printable(cell) for cell in (*first, *(_of(process) if process else [""] * 5))])
            first = [""] * len(first)
    return rows


def _said(state: Mapping[str, Any]) -> str:
    logged = [f"{time.strftime('%H:%M:%S', time.localtime(at))} {host} {text}" for at, host, text in state["said"][-6:]]
    return "\n".join(map(printable, logged))


def _headline(state: Mapping[str, Any]) -> str:
    progress, outcome = state["progress"], state["outcome"]
    words = [state["name"] or f"job of {len(state['hosts'])} hosts", f"mode {state['mode']}"]
    took, at = duration(state["at"] - state["began"]), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state["at"]))
    if outcome:
        words.append(f"{outcome['kind']} at {at} after {took}, exit code {outcome['exit_code']}")
    elif state.get("silent"):
        ago = duration(lines.now() - state["at"])
        words.append(f"no end in its records since {at}, {ago} ago: it may have been killed; it ran for {took}")
    else:
        words.append(f"running for {took}")
    if progress["done"] is not None:
        words.append(f"{progress['done']:.0%} done")
    if progress["left"] is not None and not outcome and not state.get("silent"):
        words.append(f"{duration(progress['left'])} left at this pace")
    return printable(" · ".join(words))


def _of(process: Mapping[str, Any]) -> list[str]:
    numbers = {name: value for name, value in process["metrics"].items() if not name.startswith("epoch_")}
    metrics = [f"{name}={value if isinstance(value, str) else f'{value:.6g}'}" for name, value in numbers.items()]
    shown = " ".join(metrics) or (process["lines"][-1] if process["lines"] else "")
    if process["ended"] is not None:
        return [process["name"], "", "", "", "; ".join(filter(None, (process["ended"], shown)))]
    rate = "" if process["rate"] is None else f"{process['rate']:.2f}"
    return [process["name"], f"{process['cpus']:.2f}", size(process["memory"]), rate, shown]
