"""Test refusals.py and installer.py: the reason why the user's package or a requirement could not be built.

The texts are output of setuptools 80, a compiler and CMake under pip 26 and uv 0.11, without library frames.
"""

import textwrap

import pytest
from refusals import built, of_build, of_uv

TRACEBACK = 'Traceback (most recent call last):\n  File "{}", line 333, in run_setup\n    exec(code, locals())\n{}\n'
README = TRACEBACK.format("build_meta.py", "FileNotFoundError: [Errno 2] No such file or directory: 'README.md'")
RUNS = "running bdist_wheel\nrunning build_ext\nbuilding 'fast_rows' extension\n"
NO_COMPILER = f"{RUNS}error: command 'gcc' failed: No such file or directory\n"
NO_HEADER = (
    f'{RUNS}fast_rows.c:1:10: fatal error: rows.h: No such file or directory\n    1 | #include "rows.h"\n'
    "compilation terminated.\nerror: command '/usr/bin/gcc' failed with exit code 1\n"
)
BUILDS = {
    # what a build prints: the reason
    README: "FileNotFoundError: [Errno 2] No such file or directory: 'README.md'",
    TRACEBACK.format("<frozen os>", "KeyError: 'RELEASE'"): "KeyError: 'RELEASE'",
    TRACEBACK.format(
        "x.py", "AssertionError: Exactly one .egg-info should have been produced, but found 0: []"
    ): "it calls no setup()",
    TRACEBACK.format("x.py", "ValueError: No .egg-info directory found in /tmp/pip-x"): "it calls no setup()",
    NO_COMPILER: "error: command 'gcc' failed: No such file or directory",
    NO_HEADER: "fast_rows.c:1:10: fatal error: rows.h: No such file or directory",
    f"{RUNS}/usr/bin/ld: cannot find -lrows: No such file\ncollect2: error: ld returned 1 exit status\n": (
        "/usr/bin/ld: cannot find -lrows: No such file"
    ),
    "-- Configuring\nCMake Error at CMakeLists.txt:5 (find_package):\n  Could not find Boost\n\nCall Stack\n": (
        "CMake Error at CMakeLists.txt:5 (find_package): Could not find Boost"
    ),
    "configuration error: `project.version` must be pep440\n"
    + TRACEBACK.format("x.py", "ValueError: invalid config"): ("configuration error: `project.version` must be pep440"),
    "this package needs Python 3.12\n": "this package needs Python 3.12",
}


def indented(text: str, by: int) -> str:
    return textwrap.indent(text, " " * by)


def by_pip(printed: str, what: str) -> str:
    asked = what if "://" in what else f"https://index.example/{what}-1.tar.gz"
    return (
        "  error: subprocess-exited-with-error\n\n  x Preparing metadata (pyproject.toml) did not run successfully.\n"
        f"  │ exit code: 1\n  ╰─> [9 lines of output]\n{indented(printed, 6)}      [end of output]\n\n"
        "  note: This error originates from a subprocess, and is likely not a problem with pip.\n"
        "error: metadata-generation-failed\n\nx Encountered error while generating package metadata.\n"
        f"╰─> from {asked}\n\nnote: This is an issue with the package mentioned above, not pip.\n"
    )


def by_pip_later(printed: str, name: str) -> str:
    return (
        f"  error: subprocess-exited\n  ╰─> [9 lines of output]\n{indented(printed, 6)}      [end of output]\n"
        f"  ERROR: Failed building wheel for {name}\nerror: failed-wheel-build-for-install\n\n"
        f"x Failed to build installable wheels for some pyproject.toml based projects\n╰─> {name}\n"
    )


def by_uv(printed: str, name: str = "") -> str:
    head = f"Failed to build `{name}`\n  cause: The" if name else "The"
    said = indented(printed, 9)
    return (
        f"Using Python 3.11.7 environment at: /opt/venv\nerror: {head} build backend returned an error\n"
        "  cause: Call to `setuptools.build_meta:__legacy__.build_wheel` failed (exit status: 1)\n\n"
        f"         [stdout]\n         running build\n\n         [stderr]\n{said}\nhint: Build failures usually"
    )


@pytest.mark.parametrize("printed", BUILDS, ids=BUILDS.values())
def test_reason_is_the_line_printed_by_the_build(printed: str) -> None:
    for text in (by_pip(printed, "rows"), by_pip_later(printed, "rows"), by_uv(printed), by_uv(printed, "rows==1")):
        assert of_build(text) == BUILDS[printed], text


@pytest.mark.parametrize(
    "text, name, url",
    [
        (by_pip(README, "file:///opt/ml/code"), "", "file:///opt/ml/code"),
        (by_pip_later(NO_COMPILER, "rows"), "rows", ""),
        (by_uv(README), "", ""),
        (by_uv(NO_COMPILER, "rows @ file:///opt/ml/code"), "rows", "file:///opt/ml/code"),
        (by_uv(NO_COMPILER, "rows==1.0"), "rows==1.0", ""),
    ],
)
def test_unbuildable_package_is_named_if_the_tool_names_it(text: str, name: str, url: str) -> None:
    assert built(text) == (name, url)


def test_unbuildable_requirement_is_reported_by_name() -> None:
    told = of_uv(by_uv(NO_HEADER, "rows==1.0"), [], None, {}, None)  # type: ignore[arg-type]
    assert told == f"ERROR: rows==1.0 could not be built from its sources: {BUILDS[NO_HEADER]}"


def test_output_without_a_build_gives_no_build_reason() -> None:
    assert of_build("ERROR: No matching distribution found for rows\n") == ""
    assert of_build("error: Failed to fetch: `http://x`\n  cause: dns error\n") == ""
