"""List forms of requirements, with the results of plain pip and of the launcher in our image.

docs/requirements-forms.md is written from here. `cluster/test_cluster_forms.py` runs every row twice, each time in a
new container: by `pip install -r requirements.txt`, as AWS's toolkit does, and by our installer. In such a
container, this file runs as a script.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from package_index import PASSWORD, USER, Package, Server

REFUSED, NOTHING = "refused", "nothing"
WHERE = "/forms"  # in the container: this file, the indexes `main` and `extra`, tls.pem and ca.pem


@dataclass(frozen=True)
class Form:
    """A row: `requirements` as written, pip's result, and the launcher's if it differs.

    In texts, <main>, <extra> and <tls> are the addresses of servers, and <code> is the folder of the code.
    """

    title: str
    requirements: str
    pip: str
    ours: str = ""
    tool: str = "uv"
    note: str = ""  # why both differ
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    for_pip: dict[str, str] = field(default_factory=dict)  # variables that AWS's toolkit computes
    before: str = ""  # a command for the shell
    encoding: str = "utf-8"
    shown: str = ""  # in the page, in place of `requirements`
    often: bool = False  # in the default run
    says: tuple[str, ...] = ()  # in the launcher's last line

    @property
    def launchers(self) -> str:
        return self.ours or self.pip


PACKAGES = [
    Package("plain", "1"), Package("plain", "2"), Package("plain", "3rc1"), Package("other", "1"),
    Package("extras", "1", extras={"x": "plain<2"}),
    Package("newer-python", "1"), Package("newer-python", "2", python=">=3.99"),
    Package("yanked", "1"), Package("yanked", "2", yanked=True),
    Package("legacy", "1", sdist=True), Package("source", "1", both=True), Package("source", "2", sdist=True),
    Package("early", "1rc1"), Package("asks-early", "1", asks=("plain>=3rc1",)),
    Package("labelled", "1"), Package("labelled", "1+cpu"), Package("Under_Score.Name", "1"),
    Package("fits-once", "1", asks=("numpy>=1",)), Package("fits-once", "2", asks=("numpy>=99",)),
    Package("fits-never", "1", asks=("numpy>=99",)),
    Package("asks-tensorflow", "1", asks=("tensorflow>=2",)),
    Package("asks-newer-tensorflow", "1", asks=("tensorflow>=99",)),
    Package("numpy", "99"), Package("tensorflow", "99"), Package("packaging", "99"), Package("wrapt", "0.1"),
]  # fmt: skip
IN_EXTRA = [Package("plain", "2.5"), Package("elsewhere", "1")]
LIBRARY = {
    "library/setup.py": "from setuptools import setup\n"
    "setup(name='mine', version='1', py_modules=['mine'], extras_require={'x': ['plain']})\n",
    "library/mine.py": "",
}
AT_ROOT = {name.removeprefix("library/"): text for name, text in LIBRARY.items()}
NO_INDEX = {"PIP_INDEX_URL": None}  # the variable of all other rows is not set
WITH_PASSWORD = f"http://{USER}:{PASSWORD}@<main>/private/simple"
ARN = "arn:aws:codeartifact:us-east-1:123456789012:repository/domain/mine"
AWS = {
    "CA_REPOSITORY_ARN": ARN, "AWS_ENDPOINT_URL_CODEARTIFACT": "http://<main>", "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x", "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
}  # fmt: skip
BY_HTTP = {"PIP_INDEX_URL": "http://index.invalid/simple", "PIP_TRUSTED_HOST": "index.invalid"}
STAYS = "what was built for one another stays"
HASH = "<sha256 of plain-2-py3-none-any.whl>"

FORMS = [
    # --- names and versions ---
    Form("a name", "plain", "plain 2"),
    Form("a version", "plain==1", "plain 1"),
    Form("ranges", "plain>=1,<2\nother~=1.0", "other 1, plain 1"),
    Form("a wildcard, and parentheses", "plain (==1.*)", "plain 1"),
    Form("a name twice", "plain\nplain<2", "plain 1"),
    Form("a contradiction", "plain==1\nplain==2", REFUSED),
    Form("a name that the index lacks", "no-such-package-of-ours", REFUSED),
    Form("upper case, underscores and dots in names", "PLAIN\nunder-score_NAME", "plain 2, under-score-name 1"),
    Form("extras", "extras[x]", "extras 1, plain 1"),
    Form("markers", 'plain; python_version >= "3"\nother; sys_platform == "win32"', "plain 2"),
    Form("a version for newer Pythons only", "newer-python", "newer-python 1"),
    Form("a yanked version", "yanked", "yanked 1"),
    Form("a yanked version, asked for", "yanked==2", "yanked 2"),
    Form("a local version label", "labelled", "labelled 1+cpu"),
    Form("a local version label, asked for", "labelled==1+cpu", "labelled 1+cpu"),
    # --- pre-releases ---
    Form("`--pre`", "--pre\nplain", "plain 3rc1"),
    Form("`PIP_PRE`", "plain", "plain 3rc1", environment={"PIP_PRE": "1"}),
    Form("a pre-release, asked for", "plain>=3rc1", "plain 3rc1"),
    Form("a package with pre-releases only", "early", "early 1rc1"),
    Form("a pre-release that a dependency asks for", "asks-early", "asks-early 1, plain 3rc1"),
    # --- what the file looks like ---
    Form("comments and empty lines", "# these\n\nplain # and that\n", "plain 2"),
    Form("continued lines", "plain \\\n  <2\n", "plain 1", tool="pip"),
    Form("line ends of Windows", "plain<2\r\nother\r\n", "other 1, plain 1"),
    Form("a byte order mark", "plain<2\n", "plain 1", encoding="utf-8-sig", shown="(U+FEFF) plain<2"),
    Form("UTF-16", "plain<2\n", "plain 1", encoding="utf-16", shown="(in UTF-16) plain<2"),
    Form("an empty file", "", NOTHING),
    Form(
        "variables in the file", "--extra-index-url http://${WHERE}/simple\nelsewhere", "elsewhere 1",
        environment={"WHERE": "<extra>"},
    ),
    Form("`-r` inside", "-r more/base.txt\nother", "other 1, plain 1", files={"more/base.txt": "plain<2\n"}),
    Form("`-c` inside", "-c limits.txt\nplain", "plain 1", files={"limits.txt": "plain<2\n"}),
    Form("`-r` of a URL", "-r http://<main>/more.txt", "plain 1", tool="pip"),
    Form("`-r` of a file that is missing", "-r none.txt", REFUSED, tool="pip"),
    # --- hashes ---
    Form("hashes", f"plain==2 --hash=sha256:{HASH}", "plain 2", tool="pip", often=True),
    Form("a hash that is wrong", f"plain==2 --hash=sha256:{'0' * 64}", REFUSED, tool="pip"),
    # --- places ---
    Form("a local wheel", "./wheels/plain-1-py3-none-any.whl", "plain 1"),
    Form("a local folder", "./library", "mine 1", files=LIBRARY),
    Form("a local folder with an extra", "./library[x]", "mine 1, plain 2", files=LIBRARY),
    Form("the code itself with an extra", ".[x]", "mine 1, plain 2", files=AT_ROOT),
    Form("an editable", "-e ./library", "mine 1", files=LIBRARY),
    Form("an editable with an extra", "--editable ./library[x]", "mine 1, plain 2", files=LIBRARY),
    Form("a URL", "http://<main>/files/plain-1-py3-none-any.whl", "plain 1"),
    Form("a URL by name", "plain @ http://<main>/files/plain-1-py3-none-any.whl", "plain 1"),
    Form("`file:`", "file://<code>/wheels/plain-1-py3-none-any.whl", "plain 1"),
    Form("`git+` where git is absent", "git+http://<main>/plain.git", REFUSED),
    Form("an sdist of setup.py", "legacy", "legacy 1"),
    # --- options in the file ---
    Form("`--index-url`", "--index-url http://<extra>/simple\nplain", "plain 2.5", environment=NO_INDEX),
    Form("`-i`, with a variable set, too", "-i http://<extra>/simple\nplain", "plain 2.5"),
    Form("`--index-url=`", "--index-url=http://<extra>/simple\nplain", "plain 2.5"),
    Form(
        "`--extra-index-url` with something newer", "--extra-index-url http://<extra>/simple\nplain", "plain 2.5",
        often=True,
    ),
    Form("`--find-links` to a folder", "--no-index\n--find-links wheels\nplain", "plain 1"),
    Form("`-f` to a page", "-f http://<main>/simple/plain/\nplain", "plain 2", environment={"PIP_NO_INDEX": "1"}),
    Form("`--no-binary`", "--no-binary source\nsource", "source 2"),
    Form("`--only-binary`", "--only-binary :all:\nsource", "source 1"),
    Form("`--prefer-binary`", "--prefer-binary\nsource", "source 1", tool="pip"),
    Form("`--trusted-host`", "--trusted-host <tls>\n-i https://<tls>/simple\nplain", "plain 2"),
    Form("`--no-index`, and nothing else", "--no-index\nplain", REFUSED),
    Form("`--config-settings`", "./library --config-settings=a=b", "mine 1", files=LIBRARY, tool="pip"),
    Form("`--require-hashes`", "--require-hashes\nplain==2", REFUSED, tool="pip"),
    # --- passwords ---
    Form("credentials in a URL", f"-i {WITH_PASSWORD}\nplain", "plain 2"),
    Form("credentials in a variable", "plain", "plain 2", environment={"PIP_INDEX_URL": WITH_PASSWORD}),
    Form(
        "credentials in .netrc", "-i http://<main>/private/simple\nplain", "plain 2",
        files={"~/.netrc": f"machine 127.0.0.1 login {USER} password {PASSWORD}\n"},
    ),
    Form("a password that is wrong", f"-i http://{USER}:no@<main>/private/simple\nplain", REFUSED),
    Form("CodeArtifact", "plain", "plain 2", environment=AWS, for_pip={"PIP_INDEX_URL": WITH_PASSWORD}),
    # --- pip's configuration ---
    Form("`PIP_INDEX_URL`", "elsewhere", "elsewhere 1", environment={"PIP_INDEX_URL": "http://<extra>/simple"}),
    Form("`PIP_EXTRA_INDEX_URL`", "elsewhere\nplain", "elsewhere 1, plain 2.5",
         environment={"PIP_EXTRA_INDEX_URL": "http://<extra>/simple"}),
    Form("`PIP_FIND_LINKS` and `PIP_NO_INDEX`", "plain", "plain 1",
         environment={"PIP_FIND_LINKS": "wheels", "PIP_NO_INDEX": "1"}),
    Form("`PIP_CONSTRAINT`", "plain", "plain 1", environment={"PIP_CONSTRAINT": "<code>/limits.txt"},
         files={"limits.txt": "plain<2\n"}),
    Form("`PIP_REQUIREMENT`", "other", "other 1, plain 1", environment={"PIP_REQUIREMENT": "<code>/more.txt"},
         files={"more.txt": "plain<2\n"}, tool="pip"),
    Form("`PIP_NO_BINARY`", "source", "source 2", environment={"PIP_NO_BINARY": "source"}),
    Form("`PIP_ONLY_BINARY`", "source", "source 1", environment={"PIP_ONLY_BINARY": ":all:"}),
    Form("`PIP_UPGRADE`", "plain", "plain 2", environment={"PIP_UPGRADE": "1"}, tool="pip"),
    Form("`PIP_NO_DEPS`", "extras[x]", "extras 1", environment={"PIP_NO_DEPS": "1"}),
    Form("`PIP_PREFER_BINARY`", "source", "source 1", environment={"PIP_PREFER_BINARY": "1"}, tool="pip"),
    Form("`PIP_NO_BUILD_ISOLATION`", "legacy", "legacy 1", environment={"PIP_NO_BUILD_ISOLATION": "0"}),
    Form("`PIP_NO_CACHE_DIR`, `PIP_TIMEOUT`, `PIP_QUIET`", "plain", "plain 2",
         environment={"PIP_NO_CACHE_DIR": "1", "PIP_TIMEOUT": "20", "PIP_QUIET": "1"}),
    Form("pip.conf", "elsewhere\nplain", "elsewhere 1, plain 3rc1", environment=NO_INDEX,
         files={"~/.config/pip/pip.conf": "[global]\nindex-url = http://<main>/simple\n"
                "extra-index-url = http://<extra>/simple\n[install]\npre = true\n"}),
    Form("`PIP_CONFIG_FILE`", "elsewhere", "elsewhere 1",
         environment={**NO_INDEX, "PIP_CONFIG_FILE": "<code>/own.conf"},
         files={"own.conf": "[install]\nindex-url = http://<extra>/simple\n"}),
    Form("a warm pool's cache", "legacy", "legacy 1",
         environment={"SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": "/tmp/warm"}),
    # --- the network ---
    Form("a CA bundle by `PIP_CERT`", "plain", "plain 2",
         environment={"PIP_INDEX_URL": "https://<tls>/simple", "PIP_CERT": f"{WHERE}/ca.pem"}),
    Form("a CA bundle by `REQUESTS_CA_BUNDLE`", "plain", "plain 2",
         environment={"PIP_INDEX_URL": "https://<tls>/simple", "REQUESTS_CA_BUNDLE": f"{WHERE}/ca.pem"}),
    Form("a CA bundle by `SSL_CERT_FILE`", "plain", "plain 2",
         environment={"PIP_INDEX_URL": "https://<tls>/simple", "SSL_CERT_FILE": f"{WHERE}/ca.pem"}),
    Form("a certificate of an unknown CA", "plain", REFUSED, environment={"PIP_INDEX_URL": "https://<tls>/simple"}),
    Form("a CA of the system's store", "plain", "plain 2", environment={"PIP_INDEX_URL": "https://<tls>/simple"},
         before=f"cp {WHERE}/ca.pem /usr/local/share/ca-certificates/tests.crt && update-ca-certificates"),
    Form("a proxy by `http_proxy`", "plain", "plain 2", environment={**BY_HTTP, "http_proxy": "http://<main>"}),
    Form("a proxy by `PIP_PROXY`", "plain", "plain 2", environment={**BY_HTTP, "PIP_PROXY": "http://<main>"}),
    Form("an index by http: that no `--trusted-host` names", "plain", REFUSED, "plain 2",
         note="uv needs no such option", environment={"PIP_INDEX_URL": "http://index.invalid/simple", "http_proxy": "http://<main>"}),
    Form("no network", "plain", REFUSED, environment={"PIP_INDEX_URL": "http://127.0.0.1:1/simple"}),
    # --- what was built for one another ---
    Form("what the image has", "numpy\ntensorflow", NOTHING),
    Form("what the image has, without a network", "numpy", NOTHING, environment={"PIP_INDEX_URL": "http://127.0.0.1:1"}),
    Form("another NumPy", "numpy==99", "numpy 99", REFUSED, tool="", note=STAYS,
         says=("line 1 asks for numpy==99, and numpy is ", " here", ": write numpy==", " or leave it out")),
    Form("something else of the image, in another version", "packaging==99", "packaging 99"),
    Form("a version that TensorFlow does not take", "wrapt==0.1", "wrapt 0.1", REFUSED, note=STAYS),
    Form("another TensorFlow", "tensorflow>=99", "tensorflow 99", REFUSED, tool="", note=STAYS,
         says=("line 1 asks for tensorflow>=99, and tensorflow is 2.", "--on IMAGE")),
    Form("a library that asks for `tensorflow`", "asks-tensorflow", "asks-tensorflow 1"),
    Form("a library that asks for another TensorFlow", "asks-newer-tensorflow",
         "asks-newer-tensorflow 1, tensorflow 99", REFUSED, note=STAYS,
         says=("line 1 asks for asks-newer-tensorflow", "tensorflow>=99")),
    Form("a library of which an older version fits", "fits-once", "fits-once 2, numpy 99", "fits-once 1", note=STAYS),
    Form("a library of which no version fits", "fits-never", "fits-never 1, numpy 99", REFUSED, note=STAYS,
         says=("line 1 asks for fits-never", "numpy>=99", "numpy is ", " here", "no version of fits-never")),
]  # fmt: skip


HEAD = """# Forms of requirements.txt

What the launcher makes of each form of requirements, beside plain `pip install -r requirements.txt`, as AWS's toolkit
runs it. Your own file is most likely among the forms that both install alike; [what the launcher does with
requirements](user-code.md#requirements-and-pip) says the rules.

- **Tests.** Each row is a test (`tests/cluster/test_cluster_forms.py`) in the images of TensorFlow 2.14 and 2.21, with
  an index of packages of a few lines: two new containers, one for pip, one for the launcher.
- **In the rows** INDEX, OTHER and SECURE are servers of the test, the last one by TLS, and CODE is the folder of the
  code. INDEX has `plain` 1, 2 and 3rc1, `source` 1 as a wheel and 2 as an sdist; OTHER has `plain` 2.5 and `elsewhere`.
- **By** is the tool that the launcher takes: uv, or pip where a form is pip's own. The log says which, and why.
- **No row was run** against AWS CodeArtifact itself: a stand-in gave token and address.
"""


def page() -> str:
    """Return docs/requirements-forms.md."""
    rows = ["| form | requirements.txt | plain pip | the launcher | by |", "|---|---|---|---|---|"]
    for form in FORMS:
        ours = "the same" if form.launchers == form.pip else f"{form.launchers}: {form.note}"
        rows.append(f"| {form.title} | {_shown(form)} | {form.pip} | {ours} | {form.tool or 'nothing'} |")
    return "\n".join([HEAD, *rows, ""])


def _shown(form: Form) -> str:
    variables = [f"{name}={value}" for name, value in form.environment.items() if value]
    text = form.shown or form.requirements.strip().replace("\r", "").replace("0" * 64, "000...")
    cells = [*variables, *text.split("\n")]
    return "<br>".join(f"`{_for_readers(each)}`" for each in cells if each) or "(empty)"


def _for_readers(text: str) -> str:
    names = {"<main>": "INDEX", "<extra>": "OTHER", "<tls>": "SECURE", "<code>": "CODE", HASH: "..."}
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text.replace("|", "\\|")


# ---- in the container ---------------------------------------------------------------------------------------------


def main() -> None:
    """Install the form of /form.json by `sys.argv[1]`, pip or ours, and print the result as JSON."""
    form = Form(**json.loads(Path("/form.json").read_text()))
    way, code, home = sys.argv[1], Path("/tmp/code"), Path("/tmp/home")
    where = Path(WHERE)
    with (
        Server(where / "main") as first,
        Server(where / "extra") as extra,
        Server(where / "main", where / "tls.pem") as tls,
    ):
        marks = {"main": first.url, "extra": extra.url, "tls": tls.url}
        marks = {f"<{name}>": url.partition("://")[2] for name, url in marks.items()} | {"<code>": str(code)}
        marks[HASH] = Path(WHERE, "hash").read_text()
        requirements = filled(form.requirements, marks)
        (code / "wheels").mkdir(parents=True)
        wheel = "plain-1-py3-none-any.whl"
        (code / "wheels" / wheel).write_bytes((where / "main/files" / wheel).read_bytes())
        (code / "requirements.txt").write_bytes(requirements.encode(form.encoding))
        for name, text in form.files.items():
            file = home / name.removeprefix("~/") if name.startswith("~/") else code / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(filled(text, marks))
        index = {"PIP_INDEX_URL": f"{first.url}/simple"}
        given = {**index, **form.environment, **(form.for_pip if way == "pip" else {})}
        own = {name: filled(value, marks) for name, value in given.items() if value}
        environment = {**os.environ, "HOME": str(home), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_RETRIES": "0", **own}
        installer = next(Path(sys.prefix).glob("lib/python3*/site-packages/entrypoint/programs/prepare/installer.py"))
        commands = {"pip": ["-m", "pip", "install", "-r", "requirements.txt"], "ours": [str(installer), str(code)]}
        if form.before:
            subprocess.run(form.before, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = versions()
        done = subprocess.run(
            [sys.executable, *commands[way]], cwd=code if way == "pip" else "/", env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    changed = {name: version for name, version in versions().items() if before.get(name) != version}
    came = ", ".join(f"{name} {version}" for name, version in sorted(changed.items())) or NOTHING
    print(json.dumps({"came": came if done.returncode == 0 else REFUSED, "changed": changed, "log": done.stdout}))


def filled(text: str, marks: dict[str, str]) -> str:
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


def versions() -> dict[str, str]:
    """Return the installed versions by name, as a new process would find them."""
    return {each.name.lower().replace("_", "-").replace(".", "-"): each.version for each in distributions()}


def as_json(form: Form) -> str:
    return json.dumps(asdict(form))


if __name__ == "__main__":
    main()
