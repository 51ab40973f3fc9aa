"""The forced command of the job's ssh key: starts Open MPI's daemon and nothing else.

mpirun asks for `orted ...` with its arguments quoted for a shell. No shell sees them here: they are
split as a shell would, and executed. Anything that is not a plain call of orted is refused.
"""

import os
import shlex
import sys
from pathlib import PurePath

asked = os.environ.get("SSH_ORIGINAL_COMMAND", "")
try:
    words = shlex.split(asked)
except ValueError:
    words = []
if not words or PurePath(words[0]).name != "orted":
    print(f"refused: this key starts Open MPI's daemon only, not {asked[:200]!r}", file=sys.stderr)
    sys.exit(126)
kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "ENTRYPOINT_RANKS")
os.execvpe("orted", ["orted", *words[1:]], {key: os.environ[key] for key in kept if key in os.environ})
