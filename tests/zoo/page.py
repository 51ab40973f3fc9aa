"""Write docs/libraries.md from the cases, and from what ran of them (results.json)."""

from collections.abc import Iterable, Mapping

from case import ALL_LINES, MODES, Case

DEFAULT = ALL_LINES[0]  # it has no other Keras

HEAD = """# Libraries that were tried

Which libraries train in which image ([lines](image.md#which-tensorflow)), in the versions that a `requirements.txt`
with their name installs there: [what stays at its version](user-code.md#requirements-and-pip). {trained} of {all} train on at
least one line.

- **Tests.** Each is used by a script of `tests/zoo/scripts` on two hosts in containers of the image: the loss falls,
  the replicas agree, and the saved model loads. Models are small, with random weights, and data are made on the spot.
- **refused**: no version fits, and the job ends within seconds with exit code 65. **fails**: a version is installed,
  and does not work. Both are tested, too.
- **Keras 2**: on 2.21 the job has `TF_USE_LEGACY_KERAS=1` in its environment, since the library is written for Keras 2.
- **Mode**: the way that people distribute it ([modes](modes.md)). Other ways were not tried, nor were GPUs.

{table}

The zoo runs weekly (`.github/workflows/test.yml`). By hand, all or one, after `./build.sh --tensorflow 2.21`:

    tests/run.sh --ring zoo
    TEST_LINE=2.21 TEST_IMAGE=sagemaker-tf-entrypoint:2.21 .venv/bin/python -m pytest tests/zoo -k keras-hub

With `ZOO_RESULTS=1` it writes versions into `tests/zoo/results.json`, of which
`pytest tests/unit/test_pages.py --refresh` makes this page.
"""


def page(cases: Iterable[Case], ran: Mapping[str, Mapping[str, str | float]]) -> str:
    """Return the page: a row for each library."""
    by_library: dict[str, list[Case]] = {}
    for case in cases:
        by_library.setdefault(case.library, []).append(case)
    titles = ["library", *(f"TensorFlow {line}" for line in ALL_LINES), "mode", "what does not work, and why"]
    rows = [titles, ["---"] * len(titles)]
    rows += [_row(library, by_library[library], ran) for library in sorted(by_library)]
    trained = {name.split(", ")[0] for name, result in ran.items() if result["result"] == "trains"}
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return HEAD.format(table=table, trained=len(trained & by_library.keys()), all=len(by_library))


def _row(library: str, cases: list[Case], ran: Mapping[str, Mapping[str, str | float]]) -> list[str]:
    of_lines = [[_cell(case, line, ran) for case in cases if line in case.lines] for line in ALL_LINES]
    modes = dict.fromkeys(case.mode for case in cases if not (case.refused or case.fails))
    modes = modes or dict.fromkeys(case.mode for case in cases)
    why = " ".join(dict.fromkeys(case.why for case in cases if case.why))
    return [
        f"`{library}`",
        *(", ".join(dict.fromkeys(each)) for each in of_lines),
        ", ".join(MODES[m] for m in modes),
        why,
    ]


def _cell(case: Case, line: str, ran: Mapping[str, Mapping[str, str | float]]) -> str:
    result = ran.get(case.key(line))
    if not result:
        return "not run"
    version = str(result.get("version", ""))
    if result["result"] != "trains":
        return f"{version} {result['result']}".strip()
    keras_2 = line != DEFAULT and "TF_USE_LEGACY_KERAS" in case.environment
    return f"{version}, Keras 2" if keras_2 else version
