"""A program of its own, which the coordinator's monitor starts at the job's end.

    python -I -S __main__.py RECORDS REPORT SECONDS

Without `site`, it finds our package by its own place. It prints the worst three verdicts, and never a traceback.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))


def main(folder: str, output: str, within: str) -> int:
    """Make the report of the records in a folder; the exit code."""
    from entrypoint.report.make import make
    from entrypoint.report.sources import records_in

    try:
        for line in make(records_in(Path(folder)), Path(output), within=float(within)):
            print(line)
    except Exception as error:  # the job's log is no place for our faults
        print(f"{type(error).__name__}: {error}"[:500], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
