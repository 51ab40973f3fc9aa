"""Define the exception of the prepare step, and how sources and errors are shown."""

import re


class Unusable(Exception):
    """Report in one line that the user's code cannot be used. What is not printable in a file's name is escaped."""

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message))


def missing(module: str | None, what: str) -> Unusable:
    """Return the refusal of a job that needs a package of the extra `aws`, which is not installed."""
    return Unusable(f"{what} takes {module}, which is not installed: pip install 'sagemaker-tf-entrypoint[aws]'")


def shown(source: str) -> str:
    """Return where the code comes from, without secrets: user, password, and a signed URL's query."""
    if not source.startswith("s3://") and "://" in source:
        source = re.sub(r"//[^/]*@", "//", source.partition("?")[0])
    return source if len(source) <= 300 else source[:297] + "..."


def reason(error: BaseException) -> str:
    """Return an exception's text in one line, without passwords in URLs. For errors of several files, use the first."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror is None and error.args and isinstance(error.args[0], list):
        text = str(error.args[0][0][-1])  # shutil.Error, of copytree
    return masked(" ".join(text.split())) or type(error).__name__


def masked(text: str) -> str:
    """Return a text without the users and passwords of URLs in it."""
    return re.sub(r"//[^/\s@]*@", "//", text)
