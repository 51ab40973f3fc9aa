"""Show the live page's contents in a terminal with Rich: `entrypoint top`."""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError, printable
from entrypoint.base.extras import imported
from entrypoint.base.wording import size
from entrypoint.observe.live import serve
from entrypoint.record.lines import WRONG

AGAIN_SECONDS = 1.0  # seconds between two looks
FIRST_SECONDS = 8.0  # seconds until the first state has to be there: the monitor writes it when it looks next
PATIENCE_SECONDS = 5.0  # seconds for an answer
MOST_BYTES = 64 << 20  # bytes of one
CONTROL_PORT = "7979"  # unless ENTRYPOINT_CONTROL_PORT is set
BASE = Path("/opt/ml")
Source = Callable[[], dict[str, Any]]


def source(where: str, environment: Mapping[str, str]) -> Source:
    """Return a function that gets the state of a job: at an address, in an output folder, or on this host.

    ConfigError if there can be no job.
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
    found = sorted(folder.glob("*/ml/output/data/record")) or [folder]
    return lambda: _state(lambda: _read(found), f"{folder / serve.STATE} shows no job")


def _state(get: Callable[[], bytes], why_not: str) -> dict[str, Any]:
    """Return a state; raise ConfigError, with words that begin with `why_not`, if there is none that can be drawn."""
    try:
        state: dict[str, Any] = json.loads(get())
        if state != {}:
            _headline(state), _rows(state), _said(state)
        return state
    except (OSError, http.client.HTTPException) as error:
        raise ConfigError(f"{why_not}: {error}") from None
    except WRONG:
        raise ConfigError(f"{why_not}: what answers is not a job's control port") from None


def _read(folders: list[Path]) -> bytes:
    """Return the state in the folder of the host that shows the job, or the first while none does."""
    return serve.state(next((folder for folder in folders if (folder / serve.STATE).exists()), folders[0]))


def _ask(address: str, token: str) -> bytes:
    request = urllib.request.Request(address, headers={"X-Entrypoint-Token": token} if token else {})
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy cannot reach a host of the job
    try:
        with directly.open(request, timeout=PATIENCE_SECONDS) as answer:
            return bytes(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise ConfigError(f"{address} answered {error.code}: {error.read(1000).decode(errors='replace')}") from None


def show(state_of: Source, once: bool) -> int:
    """Show the job until it ends or Ctrl-C is pressed, or once; return 0. ConfigError if there is no job or no Rich."""
    console, live = (imported(f"rich.{name}", "tools", "`entrypoint top`") for name in ("console", "live"))
    state, until = state_of(), time.monotonic() + FIRST_SECONDS
    while not state:
        if time.monotonic() > until:
            raise ConfigError(
                f"no data of this job for {FIRST_SECONDS:g} s: it has ended, or ENTRYPOINT_MONITOR is false"
            )
        time.sleep(AGAIN_SECONDS / 4)
        state = state_of()
    if once or not sys.stdout.isatty():
        console.Console().print(_drawn(state))
        return 0
    with live.Live(_drawn(state), screen=True, auto_refresh=False) as screen:
        try:
            while not state["outcome"]:
                time.sleep(AGAIN_SECONDS)
                state = state_of() or state
                screen.update(_drawn(state), refresh=True)
        except KeyboardInterrupt:
            return 0
        except ConfigError:  # the job has ended, or cannot be reached any more
            pass
    console.Console().print(_drawn(state))
    return 0


def _drawn(state: Mapping[str, Any]) -> Any:
    """Return a headline of the job, a table of hosts and processes, and the launchers' last log lines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    for name in ("host", "phase", "CPU", "memory", "net in/out", "process", "CPUs", "memory", "steps/s", "said"):
        right = name in ("CPU", "CPUs", "memory", "steps/s")
        table.add_column(name, justify="right" if right else "left", overflow="fold" if name == "said" else "ellipsis")
    for row in _rows(state):
        table.add_row(*map(Text, row))
    apart = f"error: the hosts do not train together: {found}" if (found := state.get("apart")) else ""
    below = Text(""), Text(_said(state), style="dim")
    return Group(Text(_headline(state), style="bold"), Text(printable(apart), style="bold red"), table, *below)


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
    words.append(f"{outcome['kind']}, exit code {outcome['exit_code']}" if outcome else "running")
    words.append(f"for {_time(state['at'] - state['began'])}")
    if progress["done"] is not None:
        words.append(f"{progress['done']:.0%} done")
    if progress["left"] is not None and not outcome:
        words.append(f"{_time(progress['left'])} left at this pace")
    return printable(" · ".join(words))


def _of(process: Mapping[str, Any]) -> list[str]:
    numbers = {name: value for name, value in process["metrics"].items() if not name.startswith("epoch_")}
    metrics = [f"{name}={value if isinstance(value, str) else f'{value:.6g}'}" for name, value in numbers.items()]
    shown = " ".join(metrics) or (process["lines"][-1] if process["lines"] else "")
    rate = "" if process["rate"] is None or process["ended"] else f"{process['rate']:.2f}"
    if process["ended"] is not None:
        return [process["name"], process["ended"], "", rate, shown]
    return [process["name"], f"{process['cpus']:.2f}", size(process["memory"]), rate, shown]


def _time(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"
