"""Run `entrypoint rehearse`: turn its arguments into options, print the result, choose the exit code."""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import CodeError, ConfigError
from entrypoint.base.secrets import Secrets
from entrypoint.check.rehearse.finding import goes
from entrypoint.check.rehearse.output import as_json, as_text
from entrypoint.check.rehearse.rehearse import Options, rehearse
from entrypoint.simulate.spec import pairs

GO, NO_GO, USAGE, INTERRUPTED = 0, 1, 2, 130


def rehearse_command(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Rehearse, print the result and return the exit code. 0: go; 1: no-go; 2: cannot start; 130: interrupted."""
    name = f"rehearse-{Path(args.launch).stem}-{time.strftime('%Y%m%d-%H%M%S')}"

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        options = Options(
            launch=args.launch,
            arguments=tuple(args.args),
            python=args.python,
            engine=args.engine,
            image=args.image,
            hosts=args.hosts,
            seconds=args.seconds,
            records=args.records,
            channels={name: Path(path).absolute() for name, path in pairs(args.channel, "--channel")},
            source=args.source,
            output=(args.output or Path("out", name)).absolute(),
            price=args.price,
            speedup=args.speedup,
        )
        case, findings = rehearse(options, environment, say)
    except (ConfigError, CodeError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted: all hosts have ended", file=sys.stderr)
        return INTERRUPTED
    secrets = Secrets(environment, dict(case.request.hyperparameters), dict(case.environment))
    if args.json:
        print(json.dumps(secrets.mask_all(as_json(case, findings)), indent=2))
    else:
        print(secrets.mask(as_text(case, findings)))
    return GO if goes(findings) else NO_GO
