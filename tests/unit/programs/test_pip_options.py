"""Test the translation of pip's configuration for uv; tests/requirements_forms.py runs each form in an image."""

from pathlib import Path

import pytest
from installer import Installation
from pip_options import Uv, configured, for_uv
from wanted import Files

IN_UVS_WORDS = {
    # pip's option and value: lines of a requirements file, arguments, variables
    ("index-url", "https://i"): (["--index-url https://i"], [], {}),
    ("extra-index-url", "//a //b"): (["--extra-index-url //a", "--extra-index-url //b"], [], {}),
    ("find-links", "wheels /w"): (["--find-links /code/wheels", "--find-links /w"], [], {}),
    ("find-links", "https://f"): (["--find-links https://f"], [], {}),
    ("no-index", "1"): (["--no-index"], [], {}),
    ("no-index", "false"): ([], [], {}),
    ("no-binary", "a,b"): (["--no-binary a", "--no-binary b"], [], {}),
    ("only-binary", ":all:"): (["--only-binary :all:"], [], {}),
    ("constraint", "a.txt b.txt"): ([], ["--constraints", "a.txt", "--constraints", "b.txt"], {}),
    ("pre", "yes"): ([], ["--prerelease=allow"], {}),
    ("pre", "0"): ([], [], {}),
    ("trusted-host", "a b:1"): ([], [], {"UV_INSECURE_HOST": "a b:1"}),
    ("no-build-isolation", "false"): ([], ["--no-build-isolation"], {}),  # pip's own oddity
    ("no-deps", "true"): ([], ["--no-deps"], {}),
    ("cert", "/ca.pem"): ([], [], {"SSL_CERT_FILE": "/ca.pem"}),
    ("proxy", "p:80"): ([], [], {"HTTP_PROXY": "http://p:80", "HTTPS_PROXY": "http://p:80"}),
    ("timeout", "2.5"): ([], [], {"UV_HTTP_TIMEOUT": "2"}),
    ("retries", "7"): ([], [], {"UV_HTTP_RETRIES": "7"}),
    ("cache-dir", "/c"): ([], [], {"UV_CACHE_DIR": "/c/uv"}),
    ("no-cache-dir", "1"): ([], [], {"UV_NO_CACHE": "1"}),
    ("keyring-provider", "subprocess"): ([], [], {"UV_KEYRING_PROVIDER": "subprocess"}),
    ("quiet", "1"): ([], [], {}),
}


@pytest.mark.parametrize("option, value", IN_UVS_WORDS)
def test_pip_option_becomes_uv_option(option: str, value: str) -> None:
    found = for_uv({option: value}, [], "/code")
    assert isinstance(found, Uv)
    assert (found.lines, found.arguments, found.environment) == IN_UVS_WORDS[option, value]


def test_most_requirements_options_are_passed_to_uv() -> None:
    found = for_uv({"trusted-host": "b", "index-url": "https://of-a-variable"}, [["--pre"], ["--trusted-host", "a"],
                   ["-i", "https://i"], ["--find-links", "x"]])  # fmt: skip
    assert found == Uv(["--prerelease=allow"], [], {"UV_INSECURE_HOST": "a b"})


PIPS_OWN = {
    # options, options in files: what is named
    "a target": ({"target": "/x"}, [], "PIP_TARGET"),
    "an option of some words": ({"use-deprecated": "legacy-resolver"}, [], "PIP_USE_DEPRECATED"),
    "a keyring of another kind": ({"keyring-provider": "import"}, [], "PIP_KEYRING_PROVIDER"),
    "an option in requirements": ({}, [["--prefer-binary"]], "--prefer-binary in requirements"),
    "two indexes in requirements": ({}, [["-i", "a"], ["--index-url", "b"]], "--index-url twice in requirements"),
}


@pytest.mark.parametrize("options, in_files, named", PIPS_OWN.values(), ids=PIPS_OWN)
def test_pip_only_option_is_named(options: dict[str, str], in_files: list[list[str]], named: str) -> None:
    assert for_uv(options, in_files) == named


def test_pip_variables_override_pip_config_files(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://global\ntimeout = 3\n[install]\nfind-links =\n    a\n    b\n[list]\npre = 1\n"
    )
    found = configured({"PIP_CONFIG_FILE": str(file), "PIP_TIMEOUT": "9", "PIP_EMPTY": "", "XDG_CONFIG_DIRS": "/none"})
    assert found.items() >= {"index-url": "https://global", "timeout": "9", "find-links": "\na\nb"}.items()
    assert "pre" not in found and "empty" not in found


def test_uv_gets_constraints_if_there_are_any(tmp_path: Path) -> None:
    """An environment with nothing that was built for one another has none, and uv warns of an empty file."""
    (tmp_path / "none.txt").touch()
    (tmp_path / "some.txt").write_text("numpy==1.26.4\n")
    installation = Installation(tmp_path, False, True, Files([], [], []), (), "")
    words = {
        name: installation._uv("uv", Uv([], [], {}), tmp_path, tmp_path / name)[0] for name in ("none.txt", "some.txt")
    }
    assert "--constraints" not in words["none.txt"]
    assert str(tmp_path / "some.txt") == words["some.txt"][words["some.txt"].index("--constraints") + 1]
