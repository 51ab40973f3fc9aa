"""Check code as a job's start would, for `entrypoint doctor`, before there is a job.

Standard input: {"files": [[name, text], ...], "tensorflow": its version on the job's image, "mode", "ps_workers",
"environment": of the job, "gpus", "servers", "ranks", "program": as of unsupported.doubts}. Standard output: {"names":
as tf1.listed, "doubts": [[check, file, line, found, instead], ...], "flags": as findings.flags}.
"""

import json
import sys

import findings
import tf1
import unsupported


def main() -> None:
    asked = json.load(sys.stdin)
    keras_2 = tf1.has_keras_2(asked["environment"], None, shim=asked["environment"].get("ENTRYPOINT_TF1") == "shim")
    if keras_2:  # the shim sets it
        asked["environment"]["TF_USE_LEGACY_KERAS"] = "1"
    files = [(name, findings.without_comments(text)) for name, text in asked["files"]]
    result = {
        "names": tf1.listed(files, sys.path, asked["tensorflow"], keras_2=keras_2),
        "doubts": unsupported.doubts(
            files,
            *(asked[name] for name in ("mode", "ps_workers", "tensorflow", "environment")),
            **{name: asked[name] for name in ("gpus", "servers", "ranks", "program")},
        ),
        "flags": findings.flags(files),
    }
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
