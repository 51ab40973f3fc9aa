"""Test secrets.py and secret_names.py: which names and values are secret, and how texts are masked."""

import json
import shlex
import urllib.parse
from pathlib import Path

import pytest
from growth import grows_no_faster_than_its_input
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.secret_names import is_secret
from entrypoint.base.secrets import MASK, NONE, Secrets, is_distinctive

MISSED = {"CKAN_KEY", "BUNDLE_GITHUB__COM", "PUSHOVER_USER_KEY"}  # of 689 names of secrets
AWS_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


def names_of(kind: str) -> set[str]:
    """Return the names of real projects that are "secret" or "harmless"."""
    names, is_of_kind = set(), False
    for line in (Path(__file__).parent / "names_of_secrets.txt").read_text().splitlines():
        if line.startswith("# "):
            is_of_kind = line.startswith(f"# {kind}")
        elif is_of_kind:
            names |= set(line.split())
    return names


def test_secret_names_of_real_projects_are_recognised():
    assert {name for name in names_of("secret") if not is_secret(name)} == MISSED
    assert {name for name in names_of("harmless") if is_secret(name)} == {"mixed_precision_pass"}
    assert not is_secret("")


def test_values_of_secret_names_are_masked():
    value = "Zq7Lw0XkT5"
    for name in names_of("secret") - MISSED:
        assert Secrets({name: value}).mask(f"{name}={value} and {value}") == f"{name}={MASK} and {MASK}"


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow1BAAKCAQEA0Zq7Lw\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("name", "value"),
    [("DB_PASSWORD_FILE", "Zq7Lw0XkT5\nmore-of-it-42"), ("GCP_CREDENTIALS_FILE", '{"private_key_id": "c0ffee42"}'),
     ("SSH_KEY_FILE", "Zq7Lw0XkT5" * 5), ("KUBECONFIG", "apiVersion: v1\nusers: [Zq7Lw0XkT5]"),
     ("KEY_FILE", PEM), ("server_pem", PEM), ("PWD", "Zq7Lw0XkT5")],
)  # fmt: skip
def test_content_of_secret_files_is_masked(name, value):
    for held in ({name: value}, {"settings": {"inner": {name: value}}}):
        masked = Secrets(held).mask(f"it is {value}.")
        assert not any(line.strip() in masked for line in value.splitlines())


@pytest.mark.parametrize("name", ["password" * 10_000, "_" * 100_000, "aB" * 50_000, "pass_" * 20_000, "2" * 100_000])
def test_long_names_are_judged_quickly(name):
    is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a-",
        "a://",
        "a://b:",
        "://b:c@",
        "https://x:y",
        '{"a":[',
        "[1,",
        "a.b:c/d@e ",
        "-----BEGIN",
        "/a",
        "&a",
        "?a=",
    ],
)
def test_long_texts_are_masked_in_linear_time(text):
    """This holds for secrets in names and values of variables and hyperparameters, and in printed text."""
    grows_no_faster_than_its_input(lambda size: Secrets({"x": text * size, "y": {"z": [text * size]}}), 10_000)
    grows_no_faster_than_its_input(lambda size: Secrets({"DB_PASSWORD": text * size}), 5_000)
    secret = Secrets({"API_KEY": "Zq7Lw0Xk" + text * 5, "TOKEN": "disabled", "URL": "https://me:Zq7Lw0Xk9@x"})
    grows_no_faster_than_its_input(lambda size: secret.mask(text * size), 50_000)
    grows_no_faster_than_its_input(lambda size: secret.open_end((text * size).encode(), names=True), 50_000)


DISTINCTIVE = [
    AWS_KEY, "AKIAIOSFODNN7EXAMPLE", "hf_aBcDeFgHiJ", "hunter22", "p@ssw0rd!", "correct-horse-battery-staple",
    "48151623421087", "c0ffee00-1234-5678-9abc-def012345678", "пароль-42", "Tr0ub4dor&3", "xKjH4gTr",
]  # fmt: skip
ORDINARY = [
    "", "x", "true", "disabled", "Disabled", "DISABLED", "changeme", "not set", "10000000", "12345678", "0.00012345",
    "-1e-05", "2023-11-21", "12:30:45.123", "********", "xxxxxxxxxxxx", "/opt/ml/input/data/creds.json",
    "./my_key.pem", "~/.netrc", "s3://bucket/Key", "arn:aws:secretsmanager:eu-west-1:123456789012:secret:x",
    "MirroredStrategy", "prod/db/main", "my-secret-name", "        ",
]  # fmt: skip


@pytest.mark.parametrize("value", [*DISTINCTIVE, *ORDINARY])
def test_distinctive_secret_values_are_recognised(value):
    assert is_distinctive(value) is (value in DISTINCTIVE)


WITH_KEY = f"{{'AWS_SECRET_ACCESS_KEY': '{AWS_KEY}'}} in /root/somewhere, https://x/?k={AWS_KEY}&y {AWS_KEY}{AWS_KEY}"
AFTER_NAMES = {"API_TOKEN": "disabled", "db-password": 10_000_000, "token": True}
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAo7\n-----END PRIVATE KEY-----\n"
CONFIG = {"db": [{"password": "Zq7Lw0Xk", "host": "db.example.com", "port": 5432}], "learning_rate": 0.1}
MASKED = [
    # secrets, text, masked text
    ({"AWS_SECRET_ACCESS_KEY": AWS_KEY, "HOME": "/root/somewhere"}, WITH_KEY, WITH_KEY.replace(AWS_KEY, MASK)),
    # ordinary values, after their names only
    (AFTER_NAMES, "API_TOKEN=disabled", f"API_TOKEN={MASK}"),
    (AFTER_NAMES, '"API_TOKEN": "disabled"', f'"API_TOKEN": "{MASK}"'),
    (AFTER_NAMES, "--API_TOKEN disabled", f"--API_TOKEN {MASK}"),
    (AFTER_NAMES, "['--API_TOKEN', 'disabled']", f"['--API_TOKEN', '{MASK}']"),
    (AFTER_NAMES, "SM_HP_DB_PASSWORD=10000000", f"SM_HP_DB_PASSWORD={MASK}"),
    (AFTER_NAMES, "token: true", f"token: {MASK}"),
    *(({"SIGNING_KEY": KEY}, f"  {line}\r\n", f"  {MASK}\r\n") for line in KEY.splitlines()),
    *(({"config": value}, "Zq7Lw0Xk db.example.com 5432 0.1", f"{MASK} db.example.com 5432 0.1")
      for value in (CONFIG, json.dumps(CONFIG))),
    ({"A_TOKEN": "abc123xyz", "B_TOKEN": "abc123xyz-and-more-456"}, "abc123xyz-and-more-456", MASK),
    # passwords in URLs, and tokens in place of a user
    ({"PIP_INDEX_URL": "https://user:Zq7-Lw0Xk@pypi.example.com/simple"},
     "Zq7-Lw0Xk of https://user:Zq7-Lw0Xk@pypi.example.com/simple", "*** of https://user:***@pypi.example.com/simple"),
    ({"PIP_INDEX_URL": "postgresql://u:p%40ssw0rd9@db/x"},
     "p@ssw0rd9 of postgresql://u:p%40ssw0rd9@db/x", "*** of postgresql://u:***@db/x"),
    ({"PIP_INDEX_URL": "https://ghp_aBcDeFgHiJkLmNoPqRs1@github.com/x/y.git"},
     "ghp_aBcDeFgHiJkLmNoPqRs1 of https://ghp_aBcDeFgHiJkLmNoPqRs1@github.com/x", "*** of https://***@github.com/x"),
    *(({"REPOSITORY": f"https://{user}@git.x/a.git"}, f"token {user.partition(':')[0]}.", f"token {MASK}.")
      for user in ("ghp_aBcDeFg1", "glpat-Zq7Lw0X", "hf_aBcD1234", "pypi-AgEIc1", "Zq7Lw0XkT5Zq7Lw0",
                   "Zq7Lw0Xk:x-oauth-basic")),
    # secrets of unknown URLs
    ({}, "Collecting x @ https://oauth2:Zq7-Lw0Xk@git.x/x.tar.gz", "Collecting x @ https://oauth2:***@git.x/x.tar.gz"),
    ({}, "git+https://glpat-Zq7@git.x/a.git@main", "git+https://***@git.x/a.git@main"),
    ({}, "https://Zq7Lw0XkT5Zq7Lw0:x-oauth-basic@git.x", "https://***:x-oauth-basic@git.x"),
    ({}, "postgresql://me@x.org:p#a?s@s@db/x, redis://:pw@r", "postgresql://me@x.org:***@db/x, redis://:***@r"),
    ({}, "GET /lab?token=4f&x=1 HTTP/1.1", "GET /lab?token=***&x=1 HTTP/1.1"),
    ({}, "https://x/cb#access_token=a.b&token_type=bearer", "https://x/cb#access_token=***&token_type=bearer"),
    ({}, "https://b.s3.x/k?X-Amz-Credential=A%2F1&X-Amz-Date=1&X-Amz-Signature=0a&X-Amz-Security-Token=a%3D",
     "https://b.s3.x/k?X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Signature=***&X-Amz-Security-Token=***"),
    ({}, "https://c.blob.x/a?sv=2&amp;sig=a%3D;se=1", "https://c.blob.x/a?sv=2&amp;sig=***;se=1"),
    ({}, r'{"a": "{\"u\": \"https://x/?a=1\u0026token=ab\"}"}', r'{"a": "{\"u\": \"https://x/?a=1\u0026token=***\"}"}'),
    ({}, "https://x/?key=AIzaSyA1234567890abcdefghijk", "https://x/?key=***"),
    ({}, "https://x/?auth=4f;a=1&jwt=a.b", "https://x/?auth=***;a=1&jwt=***"),
]  # fmt: skip


@pytest.mark.parametrize(("secrets", "text", "masked"), MASKED)
def test_secrets_are_masked(secrets, text, masked):
    for each in [Secrets({}, secrets)] if secrets else [NONE, Secrets({"API_KEY": "disabled"})]:
        assert each.mask(text) == each.mask(masked) == masked


PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@here\n"
DEEP = "/mnt/Efs1/" + "averylongfolder/" * 4 + "token"
USERS = ["https://jsmith42@pypi.corp/simple", "https://jsmith42:@pypi.corp/simple"]
SHOWN = [
    # secrets, texts
    (AFTER_NAMES, "step 10000000 disabled true", "db-password 100000000"),
    ({"DB_PASSWORD_FILE": "/run/secrets/db_password"}, "DB_PASSWORD_FILE=/run/secrets/db_password it is"),
    ({"GCP_CREDENTIALS_FILE": "keys/My-Project-1.json"}, "GCP_CREDENTIALS_FILE=keys/My-Project-1.json it is"),
    ({"KUBECONFIG": "/root/.kube/config"}, "KUBECONFIG=/root/.kube/config it is"),
    ({"PWD": "/opt/ml/code"}, "PWD=/opt/ml/code it is"),
    ({"OLDPWD": "/home/Me2/a"}, "OLDPWD=/home/Me2/a it is"),
    ({"CERT_FILE": "a\nb"}, "CERT_FILE=a\nb it is"),
    ({"TOKEN_FILE": DEEP}, f"TOKEN_FILE={DEEP} it is"),
    ({"CONFIG_JSON": '{"learning_rate": 0.01}'}, 'CONFIG_JSON={"learning_rate": 0.01} it is'),
    ({"SSH_PUBLIC_KEY_FILE": PUBLIC_KEY}, f"SSH_PUBLIC_KEY_FILE={PUBLIC_KEY} it is"),
    *(({"PIP_INDEX_URL": url, "data": f'{{"from": "{url}"}}'}, "/home/jsmith42/train.py of jsmith42") for url in USERS),
    ({"data": "abfss://data-v2-2024@acct.dfs.x/a"}, "/opt/ml/input/data/data-v2-2024/rows.csv"),
    ({"API_KEY": "", "token": None}, "=: "),
    ({"DB_PASSWORD": "   "}, "DB_PASSWORD= and more"),
    ({}, "AWS_SECRET_ACCESS_KEY=x",
     "git@github.com:x/y.git", "me@example.com", "ssh://deploy-7@host", "git+ssh://APKAEIBAERJR2EXAMPLE@host/x",
     "https://alice@bitbucket.org/x", "http://host:80?mail=a@b.c", '{"u":"http://h:80","mail":"a@b.c"}',
     "http://[::1]:80/", "https://medium.com/@Zq7Lw0XkT5", "http://h:80/a@b:c",
     "https://x/?key=data/part-001.csv&sort_key=a&max_tokens=5", "a ? b : token = c & d", "<http://h:80>,<a@b.c>",
     "step=1;auth=none;sig=0.23", "#sig=0.23", "abfss://data-v2-2024@acct.dfs.x/a",
     "wasbs://data-for-the-training-2024@acct.blob.x/a"),
]  # fmt: skip


@pytest.mark.parametrize(("secrets", "text"), [(secrets, text) for secrets, *texts in SHOWN for text in texts])
def test_texts_without_secrets_are_shown(secrets, text):
    assert (Secrets(secrets) if secrets else NONE).mask(text) == text


TRICKY = ['quo"te-%s', "back\\slash-9", "sp ace & <9>", "a'b'c'd'9", "line one 1\nline two 2", "tab\there 42",
          "ümläut-😀-9", "100%-sure/yes+no=9", "$(id) `id` ;9"]  # fmt: skip


@pytest.mark.parametrize("value", TRICKY)
def test_values_are_masked_however_programs_quote_them(value):
    secret = Secrets({"MY_SECRET": value})
    for printed in (
        value,
        json.dumps({"x": value}),
        json.dumps({"x": value}, ensure_ascii=False),
        json.dumps({"x": json.dumps({"y": value})}),
        repr({"x": value}),
        repr({"SM_HPS": json.dumps({"y": value})}),
        shlex.quote(value),
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote(value),
    ):
        assert MASK in secret.mask(printed), printed
        for part in value.splitlines():
            assert part not in secret.mask(printed)


def test_secrets_in_nested_values_are_masked():
    secret = Secrets({"API_KEY": "Zq7Lw0Xk"})
    value = {"a": ["x Zq7Lw0Xk", 5, None, {"b": ("Zq7Lw0Xk",)}], "c": True}
    assert secret.mask_all(value) == {"a": [f"x {MASK}", 5, None, {"b": [MASK]}], "c": True}


def test_bytes_that_are_not_utf8_are_masked():
    secret = Secrets({"API_KEY": "Zq7L\udcffw0Xk"})  # as an environment holds the byte 0xFF
    assert secret.mask_bytes(b"\xfe Zq7L\xffw0Xk \xfe") == b"\xfe *** \xfe"
    assert Secrets({"API_KEY": "Zq7Lw0Xk"}).mask("\ud800 Zq7Lw0Xk") == f"\ud800 {MASK}"


names = st.sampled_from(["API_KEY", "password", "x", "my_token", "config"])
values = st.text(max_size=30) | st.integers() | st.booleans() | st.none() | st.dictionaries(names, st.text(max_size=20))


@given(st.dictionaries(names, values), st.text(), st.binary())
def test_masking_handles_any_secret_and_text(secrets, text, data):
    secret = Secrets(secrets)
    masked = secret.mask(text)
    assert secret.mask_bytes(masked.encode("utf-8", "surrogatepass")).count(b"***") >= masked.count(MASK)
    assert secret.mask_bytes(data).count(b"\n") <= data.count(b"\n")
    for name, value in secrets.items():
        if name != "x" and name != "config" and isinstance(value, str) and is_distinctive(value.strip()):
            assert value.strip() not in secret.mask(f"{text} {value.strip()} {text}").replace(MASK, "")


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz ,.=:-\n0123456789", max_size=200))
def test_texts_without_secrets_stay_as_they_are(text):
    secret = Secrets({"AWS_SECRET_ACCESS_KEY": AWS_KEY, "API_TOKEN": "Disabled", "DB_PASSWORD": "Zq7Lw0Xk!"})
    assert secret.mask(text) == text


def test_long_values_are_judged_quickly():
    """A regex with unbounded backtracking would take years for these values."""
    for value in ("correcthorsebatterystaple" * 8 + "1", "aB" * 100 + "1", "word " * 100 + "!"):
        Secrets({"DB_PASSWORD": value}, {})
