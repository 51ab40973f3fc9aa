"""What a job's start would say of code, for `entrypoint doctor`, which asks before there is a job.

Standard input: {"files": [[name, text], ...], "tensorflow": its version on the job's image, "mode", "ps_workers",
"environment": of the job}. Standard output: {"names": as tf1.listed, "doubts": sentences, "flags": as findings.flags}.
"""

import json
import sys

import doubts
import findings
import tf1


def main() -> None:
    asked = json.load(sys.stdin)
    files = [(name, findings.COMMENT.sub("", text)) for name, text in asked["files"]]
    told = {
        "names": tf1.listed(files, sys.path, asked["tensorflow"]),
        "doubts": doubts.doubts(files, asked["mode"], asked["ps_workers"], asked["tensorflow"], asked["environment"]),
        "flags": findings.flags(files),
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
