"""Test programs/prepare/s3.py against a server that answers and fails as S3 can."""

import hashlib
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
import s3
from ports import unused_port
from unusable import Unusable

CONTENT = os.urandom(300_000)
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAGEHEIMGEHEIM",
    "AWS_SECRET_ACCESS_KEY": "geheim-secret",
    "AWS_SESSION_TOKEN": "geheim-token",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Clear the machine's own AWS settings and set credentials that no error may show."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "S3_", "SAGEMAKER_"))]:
        monkeypatch.delenv(name)
    for name, value in {**SECRETS, "AWS_REGION": "eu-west-1", "HOME": str(tmp_path), "NO_PROXY": "*"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # keeps credentials that boto3 has found


def refused(uri: str, target: Path) -> str:
    """Return the error of a failed download; check that it is one line with the URI and without secrets."""
    with pytest.raises(Unusable) as error:
        s3.download(uri, target)
    text = str(error.value)
    assert text.startswith(f"the code at {uri} cannot be fetched: ")
    assert "\n" not in text and "geheim" not in text.lower()
    assert not target.exists()
    return text


class Server(ThreadingHTTPServer):
    """A server of one object at any path; `paths` lists the requested paths.

    `breaks`: how many downloads are cut off; `answer`: status and error code for every request.
    """

    def __init__(self, breaks: int = 0, answer: tuple[int, str, str] | None = None, headers=None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.breaks, self.answer, self.headers, self.gets = breaks, answer, headers or {}, 0
        self.paths: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> "Server":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_HEAD(self) -> None:
        self.server.paths.add(unquote(self.path))
        if self.server.answer:
            self.reply(self.server.answer[0], b"")
        else:
            self.reply(200, CONTENT)

    def do_GET(self) -> None:
        if self.server.answer:
            status, code, message = self.server.answer
            xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            self.reply(status, xml.encode())
            return
        self.server.gets += 1
        self.close_connection = self.server.gets <= self.server.breaks
        self.reply(200, CONTENT, CONTENT[: len(CONTENT) // 2] if self.close_connection else CONTENT)

    def reply(self, status: int, content: bytes, sent: bytes | None = None) -> None:
        self.send_response(status)
        for name, value in {**self.server.headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.send_header("ETag", f'"{hashlib.md5(CONTENT).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content if sent is None else sent)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"])
@pytest.mark.parametrize("key", ["job/source/sourcedir.tar.gz", "odd ?key#+%2F.tar.gz"])
def test_s3_object_is_downloaded_from_the_configured_endpoint(monkeypatch, tmp_path, variable, key):
    with Server() as server:
        monkeypatch.setenv(variable, server.url)
        s3.download(f"s3://bucket/{key}", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert server.paths == {f"/bucket/{key}"}


def test_interrupted_download_is_resumed(monkeypatch, tmp_path):
    with Server(breaks=2) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        s3.download("s3://bucket/a.tar.gz", tmp_path / "a")
        assert server.gets == 3
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_always_interrupted_download_fails_finally(monkeypatch, tmp_path):
    with Server(breaks=10**9) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        assert "the download was interrupted 4 times" in refused("s3://bucket/a.tar.gz", tmp_path / "a")


USER = 'User: arn:aws:sts::123456789012:assumed-role/role/SageMaker is not authorized to perform: kms:Decrypt on "arn"'
MOVED = {"x-amz-bucket-region": "eu-west-1"}
ANSWERS = {
    # status, code and message of the answer; its headers, or variables of the job: what is said
    "no such object": (
        (404, "NoSuchKey", "no"), {}, "there is no such object; wanted the key of an archive that is in bucket bucket"),
    "no such bucket": ((404, "NoSuchBucket", "no"), {}, "there is no bucket bucket;"),
    "denied": (
        (403, "AccessDenied", "Access Denied"), {},
        "access is denied; wanted s3:GetObject on arn:aws:s3:::bucket/a.tar.gz for the job's execution role"),
    "denied, with a reason": ((403, "AccessDenied", USER), {}, f"S3 answered AccessDenied: {USER}"),
    "denied in China": (
        (403, "AccessDenied", "no"), {"AWS_REGION": "cn-north-1"}, "s3:GetObject on arn:aws-cn:s3:::bucket/a.tar.gz"),
    "unknown key": ((403, "InvalidAccessKeyId", "The key id does not exist"), {}, "the credentials are not accepted"),
    "wrong key": ((403, "SignatureDoesNotMatch", "The signature differs"), {}, "the credentials are not accepted"),
    "expired": ((400, "ExpiredToken", "The token has expired."), {}, "the credentials are not accepted"),
    "another region": ((301, "PermanentRedirect", "no"), MOVED, "bucket bucket is not in region eu-west-1"),
    "another region than sagemaker-training's": (
        (301, "PermanentRedirect", "no"), {**MOVED, "AWS_REGION": "", "SAGEMAKER_REGION": "us-west-2"},
        "is not in region us-west-2;"),
    "another region than that of both": (
        (301, "PermanentRedirect", "no"), {**MOVED, "SAGEMAKER_REGION": "us-west-2"}, "is not in region eu-west-1;"),
    "another region than none": (
        (301, "PermanentRedirect", "no"), {**MOVED, "AWS_REGION": ""}, "is not in region us-east-1;"),
    # It asks itself without end.
    "elsewhere, but not where": ((301, "PermanentRedirect", "no"), {}, "RecursionError"),
    "wrong region": ((400, "AuthorizationHeaderMalformed", "The region is wrong"), {}, "bucket is not in region"),
    "archived": ((403, "InvalidObjectState", "Not valid for it"), {}, "S3 answered InvalidObjectState"),
    "no reason": ((403, "403", "Forbidden"), {}, "access is denied"),
}  # fmt: skip


@pytest.mark.parametrize("answer, more, said", ANSWERS.values(), ids=ANSWERS)
def test_s3_error_answer_is_explained(monkeypatch, tmp_path, answer, more, said):
    headers = {name: value for name, value in more.items() if name.startswith("x-")}
    with Server(answer=answer, headers=headers) as server:
        for name, value in {**more, "AWS_ENDPOINT_URL_S3": server.url}.items():
            monkeypatch.setenv(name, value)
        assert said in refused("s3://bucket/a.tar.gz", tmp_path / "a")


NO_SECRETS = dict.fromkeys(SECRETS, "")
FOUND = {
    # variables, with {url} of a server that answers 400 and {silent}, where nobody listens: URI, what is said
    "a silent endpoint with a password": (
        {"AWS_ENDPOINT_URL_S3": "http://me:geheim@{silent}"}, "s3://bucket/a.tar.gz",
        "S3 does not answer; wanted a network.*channel `code`.*{silent}"),
    "no credentials": (
        {**NO_SECRETS, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL_S3": "http://{silent}"}, "s3://bucket/a",
        "there are no credentials; wanted the job's execution role"),
    # They come from an address that SageMaker names; here it has none to give.
    "no credentials of the role": (
        {**NO_SECRETS, "AWS_CONTAINER_CREDENTIALS_FULL_URI": "{url}/credentials"}, "s3://bucket/a",
        "the credentials of the job's execution role cannot be had"),
    "no URL": ({"AWS_ENDPOINT_URL_S3": "no url"}, "s3://bucket/a.tar.gz", "Invalid endpoint"),
    "no region": ({"AWS_REGION": "no region!"}, "s3://bucket/a.tar.gz", "region"),
    "no bucket": ({}, "s3://a b/a.tar.gz", "Invalid bucket name"),
}  # fmt: skip


@pytest.mark.parametrize("variables, uri, said", FOUND.values(), ids=FOUND)
def test_setting_that_prevents_download_is_explained(monkeypatch, tmp_path, variables, uri, said):
    silent = f"127.0.0.1:{unused_port()}"
    with Server(answer=(400, "x", "y")) as server:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(url=server.url, silent=silent))
        assert re.search(said.replace("{silent}", re.escape(silent)), refused(uri, tmp_path / "a"))
