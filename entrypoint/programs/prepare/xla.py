"""Find optimizers of Keras 2 whose steps XLA compiles where a GPU is seen.

XLA takes no variable of another device. With parameter servers the learning rate is on one of them, and each weight on
any of them, so the first step fails. Optimizers are found by their words, as in unsupported.py: reading a script does
not tell for sure what a name means.
"""

import re
from collections.abc import Iterator

NAMES = "Adadelta|Adafactor|Adagrad|Adam|AdamW|Adamax|Ftrl|Lion|Nadam|RMSprop|SGD"
CLASSES = {name.lower(): name for name in NAMES.split("|")}
FIRST_KERAS = (2, 11)  # of TensorFlow: older optimizers, later called legacy, have no XLA
MADE = re.compile(rf"(?<![\w.])((?:\w+\.)*optimizers\.(?:experimental\.)?)({NAMES})\(")
IMPORTED = re.compile(
    r"^[^\S\n]*from\s+[\w.]*keras\.optimizers(?:\.experimental)?\s+import\s+(\([^)]*\)|.*)", re.MULTILINE
)
COMPILE = re.compile(r"(?<!\bre)\.compile\(")
BY_NAME = re.compile(r"""(?:^\s*|\boptimizer\s*=\s*)(['"])(\w+)\1""")
SERVERS = re.compile(r"(?<!v1\.)\bParameterServerStrategy(V2)?\(|\bClusterCoordinator\(")
OFF, MAYBE_OFF = re.compile(r"\.jit_compile\s*=\s*False\b"), re.compile(r"\bjit_compile\s*=\s*False\b|\*\*")
LONG_CHARS = 60  # characters of a call that are shown


def compiled(files: list[tuple[str, str]]) -> Iterator[tuple[str, int, int, str, str]]:
    """Yield (file, line, how many more there are, the optimizer's text, what to write) of each file with some.

    Nothing is yielded if no file makes a strategy for parameter servers.
    """
    if not any(SERVERS.search(text) for _, text in files):
        return
    for name, text in files:
        found = [] if OFF.search(text) else sorted(_of(text))
        if found:
            at, written, instead = found[0]
            yield name, text.count("\n", 0, at) + 1, len(found) - 1, written, instead


def _of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (place, the optimizer's text, what to write)."""
    imported = "|".join(
        word for match in IMPORTED.finditer(text) for word in re.findall(r"\w+", match[1]) if word.lower() in CLASSES
    )
    patterns = [MADE] + ([re.compile(rf"(?<![\w.])()({imported})\(")] if imported else [])
    for match in (found for pattern in patterns for found in pattern.finditer(text)):
        inside = _arguments(text, match.end())
        if not MAYBE_OFF.search(inside):
            call = " ".join(f"{match[1]}{match[2]}({inside}".split())
            shown = call if len(call) < LONG_CHARS else f"{match[1]}{match[2]}(..."
            yield match.start(), f"{shown})", f"{shown}{', ' if inside.strip() else ''}jit_compile=False)"
    for match in COMPILE.finditer(text):
        by_name = BY_NAME.search(_arguments(text, match.end()))
        if by_name and by_name[2].lower() in CLASSES:
            made = f"tf.keras.optimizers.{CLASSES[by_name[2].lower()]}(jit_compile=False)"
            yield match.start() + 1, f'compile(... "{by_name[2]}" ...)', f"{made} in place of {by_name[2]!r}"


def _arguments(text: str, start: int) -> str:
    """Return the text between the bracket before `start` and the one that closes it."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return text[start:at]
    return text[start:]
