"""Find the secret values of a job and mask them in texts. Pure.

A value is secret by the name of the environment variable or hyperparameter that holds it (`DB_PASSWORD`, `api_key`), or
as the password or token in a URL. A value that is unlike ordinary text is masked wherever it appears. A value that is
also an ordinary word or number (`disabled`, `10000000`) is masked only after its name, so that the log stays readable.
The passwords and tokens of URLs are masked in every text, whether or not the job was given them. A short user name
without a password may be a token or a person: it is masked in URLs alone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from entrypoint.base.secret_names import is_secret

MASK = "***"
SHORTEST_CHARS = 8  # characters; a shorter value also appears in texts that mean something else
_LONGEST_JSON = 1 << 20

# What stands between `://` and the last `@` of a URL. A colon may begin a port instead, if an `@` stands further on.
# These read a text once, since a match ends before the next `/`, or before the next separator. They are compiled when
# a text may have such a URL, which few jobs' environments have: that takes some milliseconds of a start.
_USER = rb"://([^\s/:\"'<>]*)(?::(?!\d{1,5}[?#])([^\s/\"'<>]*))?@"
_NAME = rb"(?:[?&#;]|\\u0026)([A-Za-z][\w.~-]{0,63})="  # of a parameter in a URL
_PARAMETER = _NAME + rb"([^\s&#;\"'<>\\]+)"
_SIGNS = ("signature", "sig", "auth", "jwt")  # names that are secret in URLs' queries alone, as in X-Amz-Signature
_QUERY = b"?&\\"  # what such a name follows; the backslash is that of \u0026
_TOKEN_CHARS = 16  # characters; a user without a password who is as long is a token
_TOKEN = r"(gh[opsur]_|github_pat_|gl(pat|ptt|dt|rt|cbt)-|hf_|pypi-|npm_|dckr_[po]at_|A[KS]IA).+"  # or begins so
_USERS = (b"ssh", b"sftp", b"abfs", b"abfss", b"wasb", b"wasbs")  # schemes of users without a password, or containers
_API_KEY = r"(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[\w-]{24,}"  # where the name is `key` alone
# The end of a text that may be the beginning of such a secret; where the text is cut there, its name is needed, too.
_OPEN_USER = rb"://[^\s/\"'<>]+\Z"
_OPEN_NAME = rb"(?:[a-z+]{0,16}:(?:/{0,2}|//[^\s/\"'<>]*)|[?&#;](?:[A-Za-z][\w.~-]*(?:=[^\s&#;\"'<>\\]*)?)?)\Z"
_LONGEST_OPEN = 1 << 12

_WORD = r"(?:[A-Z]?[a-z]{2,}(?:[A-Z][a-z]{2,})*|[A-Z]+|[a-z])"  # there is only one way to read a word
_WORDS = re.compile(rf"{_WORD}(?:[ _./:-]+{_WORD})*")
_FIGURES = re.compile(r"[-+0-9.,:/_eE\s]+")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")  # of a PEM file
_BASE64 = re.compile(r"(?!/)(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/_-]{40,}={0,2}")
_PLACE = re.compile(r"(~|\.{1,2})?(/[a-z0-9._-]+)+/?|(s3://|arn:)\S+")


def is_distinctive(value: str) -> bool:
    """Return whether a secret is unlike ordinary text, so that it can be masked wherever it appears."""
    if len(value) < SHORTEST_CHARS or len(set(value)) < 4 or _PLACE.fullmatch(value):
        return False
    if _WORDS.fullmatch(value):
        return len(value) >= 20
    return not (_FIGURES.fullmatch(value) and sum(map(str.isdigit, value)) < 12)


class Secrets:
    """Mask the secret values of a job. Text without secrets passes quickly, since every line of output is checked."""

    def __init__(self, *sources: Mapping[str, Any]) -> None:
        """Take mappings of names to values, such as an environment and hyperparameters."""
        pairs = {pair for source in sources for key, value in source.items() for pair in _pairs(str(key), value)}
        everywhere = {
            form
            for name, value in pairs
            for line in {value, *value.splitlines()}
            if is_distinctive(line.strip())
            for form in _forms(line.strip())
        }
        # A program may print single lines of a value. Longest first, since one value may contain another.
        self._values = sorted(map(_bytes, everywhere), key=len, reverse=True)
        self._after_name = [
            (_bytes(name), _after(name, value))
            for key, value in sorted(pairs)
            if key and value.strip() and not is_distinctive(value)
            for name in sorted({key, key.upper().replace("-", "_")})
        ]

    def mask(self, text: str) -> str:
        masked = self.mask_bytes(data := text.encode("utf-8", "surrogatepass"))
        return text if masked == data else masked.decode("utf-8", "surrogatepass")

    def mask_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, dict):
            return {key: self.mask_all(inner) for key, inner in value.items()}
        return [self.mask_all(inner) for inner in value] if isinstance(value, list | tuple) else value

    def mask_bytes(self, data: bytes) -> bytes:
        for value in self._values:
            if value in data:
                data = data.replace(value, MASK.encode())
        for name, pattern in self._after_name:
            if name in data:
                data = pattern.sub(rb"\1" + MASK.encode(), data)
        for of_urls in _patterns_for(data):
            data = re.sub(of_urls, _without_secrets, data)
        return data

    def open_end(self, data: bytes, names: bool = False) -> int:
        """Return how many bytes at the end of a masked text may be the beginning of an incomplete secret.

        With `names`, also count a name that a secret may follow: a caller that cuts the text there needs the name to
        find the secret.
        """
        length = 0
        for value in [*self._values, *(name for name, _ in self._after_name if names)]:
            at = max(0, len(data) - len(value) + 1)
            while 0 <= (at := data.find(value[:1], at)) < len(data) - length:
                if value.startswith(data[at:]):
                    length = len(data) - at
                at += 1
        for name, pattern in self._after_name:
            at = data.rfind(name)
            if at >= 0 and len(data) - at < len(pattern.pattern):
                length = max(length, len(data) - at - (0 if names else len(name)))
        end = data[-_LONGEST_OPEN:]
        found = re.search(_OPEN_NAME if names else _OPEN_USER, end)
        return max(length, len(end) - found.start()) if found else length


def _pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each secret in a value: the value itself, secrets inside it, passwords in URLs."""
    text = value if isinstance(value, str) else json.dumps(value)
    if _holds_secret(name, text):
        yield name, text
    data = _bytes(text)
    for found in (found for pattern in _patterns_for(data) for found in re.finditer(pattern, data)):
        from urllib.parse import unquote  # here and below: few jobs have secrets, and each import delays the start

        for group in _secret_groups(found):
            secret = found[group].decode("utf-8", "surrogateescape")
            is_token = len(secret) >= _TOKEN_CHARS or re.fullmatch(_TOKEN, secret)
            if found.re.pattern == _USER and group == 1 and not (found[2] or is_token):
                continue  # as a word of other texts it may be a person, or a folder
            yield from (("", secret), ("", unquote(secret)))
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") and len(value) <= _LONGEST_JSON:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    for key, inner in _members(value):
        inner_text = inner if isinstance(inner, str) else json.dumps(inner)
        if inner not in (None, True, False) and _holds_secret(key, inner_text):
            yield key, inner_text


def _patterns_for(data: bytes) -> Iterator[bytes]:
    if b"://" in data:
        yield _USER
    if b"=" in data and any(separator in data for separator in (b"?", b"&", b"#", b";")):
        yield _PARAMETER


def _secret_groups(found: re.Match[bytes]) -> list[int]:
    """Return which groups of a match of _USER or _PARAMETER are secret."""
    if found.re.pattern == _PARAMETER:
        before = found.string[max(0, found.start() - 4) : found.start() + 1]
        named = _names_secret(found[1], found[0][:1] in _QUERY or before == b"&amp;")
        is_key = named is None and re.fullmatch(_API_KEY, found[2].decode("utf-8", "replace"))
        return [2] if named or is_key else []
    user, password = found[1].decode("utf-8", "replace"), found[2]
    if password not in (None, b"", b"x-oauth-basic"):  # GitHub's word for none
        return [2]
    scheme = found.string[max(0, found.start() - 5) : found.start()].lower()
    if not user or scheme.endswith(_USERS):
        return []
    is_name = _WORDS.fullmatch(user) if scheme.endswith((b"http", b"https")) else not is_distinctive(user)
    return [] if is_name and len(user) < _TOKEN_CHARS else [1]


@lru_cache(4096)
def _names_secret(parameter: bytes, in_query: bool) -> bool | None:
    """Return whether a parameter of a URL is secret by its name; None for `key`, where the value decides."""
    name = parameter.decode()
    last = re.split("[-_.]", name.lower())[-1]
    return True if (in_query and last in _SIGNS) or is_secret(name) else None if last == "key" else False


def _without_secrets(found: re.Match[bytes]) -> bytes:
    text, begin = found[0], found.start()
    for group in reversed(_secret_groups(found)):
        text = text[: found.start(group) - begin] + MASK.encode() + text[found.end(group) - begin :]
    return text


def _holds_secret(name: str, text: str) -> bool:
    """Return whether a value is secret as a whole: by its name, or because it is a private key."""
    if is_secret(name, content=_is_content(name, text)):
        return True
    return text.lstrip()[:1] not in ("{", "[") and bool(_PRIVATE_KEY.search(text))


def _is_content(name: str, text: str) -> bool:
    """Return whether a value cannot be a path, although its name may mean a file.

    With PWD, only an absolute path is a path.
    """
    text = text.strip()
    if name == "PWD":
        return not text.startswith("/")
    return text.startswith("{") or "\n" in text or bool(_BASE64.fullmatch(text))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield from value.items()
            todo += value.values()
        elif isinstance(value, list):
            todo += value


def _forms(value: str) -> set[str]:
    """Return the forms in which programs print a text: as it is, as JSON, as Python, for a shell, in a URL."""
    import shlex
    from urllib.parse import quote

    as_json = json.dumps(value)[1:-1]
    texts = {value, as_json, json.dumps(value, ensure_ascii=False)[1:-1], value.replace("\n", "\\n")}
    texts |= {json.dumps(as_json)[1:-1], *(repr(text)[1:-1] for text in (value, as_json))}
    texts |= {repr(text + "'\"")[1:-4] for text in (value, as_json)}  # beside quotes of both kinds
    texts |= {shlex.quote(value).strip("'"), value.replace("'", "'\\''")}
    return texts | {quote(value, safe="", errors="replace"), quote(value, errors="replace")}


def _after(name: str, value: str) -> re.Pattern[bytes]:
    """Return a pattern that finds a value after its name.

    It finds `name=value`, `"name": "value"`, `--name value` and `'--name', 'value'`.
    """
    before, after = re.escape(_bytes(name)), re.escape(_bytes(value.strip()))
    return re.compile(rb"(" + before + rb"[\"']?[\s=:,]{1,3}[\"']?)" + after + rb"(?!\w)")


def _bytes(text: str) -> bytes:
    """Return the bytes that a process prints for a text; an environment may hold bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


NONE = Secrets()
