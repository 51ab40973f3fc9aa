"""Test that every Horovod script in examples and pages pins its GPU after `init` and before using TensorFlow."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def shown() -> dict[str, str]:
    """Return the Python code of each example and page, by its place."""
    found = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))}
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        found |= {f"{page.relative_to(ROOT)}, block {number}": block for number, block in enumerate(blocks, 1)}
    return found


WITH_HOROVOD = {where: text for where, text in shown().items() if re.search(r"^\s*hvd\.init\(", text, re.MULTILINE)}


def test_all_horovod_examples_are_found():
    assert {"examples/deepfm/train.py", "examples/resnet/train.py"} <= WITH_HOROVOD.keys()
    assert any(where.startswith("docs/threads.md") for where in WITH_HOROVOD)


def calls_after_init(text: str) -> list[str]:
    """Return the calls after `hvd.init()` in the function or module that calls `hvd.init()`."""
    for scope in ast.walk(ast.parse(text)):
        if not isinstance(scope, ast.FunctionDef | ast.Module):
            continue
        statements = [ast.unparse(statement) for statement in scope.body]
        at = next((number for number, text in enumerate(statements) if text.startswith("hvd.init(")), None)
        if at is not None:
            calls = [node for statement in scope.body[at + 1 :] for node in ast.walk(statement)]
            return [ast.unparse(node.func) for node in calls if isinstance(node, ast.Call)]
    return []


@pytest.mark.parametrize("where", WITH_HOROVOD)
def test_horovod_script_pins_gpu_before_using_tensorflow(where):
    calls = calls_after_init(WITH_HOROVOD[where])
    assert "pin_gpu" in calls, f"{where}: each rank would take all GPUs of its host"
    before = calls[: calls.index("pin_gpu")]
    assert not [call for call in before if call.startswith("tf.") or "model" in call.lower()], before
