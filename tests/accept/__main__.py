"""Run the acceptance run: training jobs on SageMaker itself, in your account, that show what this project promises.

    python tests/accept --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1 --role ROLE-ARN --dry-run
    python tests/accept --image ... --role ... --yes
    python tests/accept --image ... --role ... --yes single raises stopped

It needs boto3 and a checkout of this project, no SDK. Nothing is submitted without --yes. docs/accept.md has the cases,
the cost, and what AWS must allow.
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder: our modules are accept.NAME
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from accept import pages, rights  # noqa: E402  (after the path is set)
from accept.account import Account, Refused  # noqa: E402
from accept.beliefs import compare  # noqa: E402
from accept.cases import Case, chosen  # noqa: E402
from accept.judging import outcome  # noqa: E402
from accept.requests import Where, request  # noqa: E402
from accept.running import Job, Run, clean, upload  # noqa: E402

# On-demand training, us-east-1, in dollars an hour; written down on 2026-11-28 and not looked up since. Other regions
# cost more: pass --price.
PRICES = {
    "ml.m5.large": 0.115,
    "ml.m5.xlarge": 0.23,
    "ml.c5.xlarge": 0.204,
    "ml.g4dn.xlarge": 0.736,
    "ml.g5.xlarge": 1.408,
}
REGION_OF_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.([\w-]+)\.amazonaws\.com")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # jobs are stopped as on Ctrl-C
    try:
        return run(args)
    except (Refused, ValueError) as error:
        print(f"tests/accept: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python tests/accept", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("case", nargs="*", help="by default, all")
    add("--image", required=True, metavar="URI", help="in ECR, in the job's region")
    add("--role", required=True, metavar="ARN", help="of the role that the jobs get")
    add("--yes", action="store_true", help="submit the jobs, which costs money")
    add("--dry-run", action="store_true", help="print cost, rights and requests, and call nothing of AWS")
    add("--policy", action="store_true", help="print the IAM policies of role and caller as JSON, and nothing else")
    add("--region", help="default: that of your AWS configuration")
    add("--profile", help="of your AWS configuration")
    add("--bucket", help="for code, data and output; default: sagemaker-REGION-ACCOUNT, which the SDKs use")
    add("--instance-type", default="ml.m5.large", metavar="TYPE", help="default: ml.m5.large")
    add("--gpu", default="", metavar="TYPE", help="run the cases for GPUs, too, on instances of this type")
    add("--efa", default="", metavar="TYPE", help="run the case for EFA, too")
    add("--subnets", nargs="+", default=[], metavar="ID")
    add("--security-groups", nargs="+", default=[], metavar="ID")
    add(
        "--sdk-python",
        action="append",
        default=[],
        metavar="PYTHON",
        help="one with SageMaker's SDK v2 or v3; may be repeated",
    )
    add("--at-once", type=int, default=8, metavar="N", help="instances; the quota lowers it by itself; default: 8")
    add(
        "--price",
        type=float,
        metavar="USD",
        help="of an instance and hour; default: that of us-east-1, where it is known",
    )
    add("--budget", type=float, metavar="USD", help="submit nothing if the bound is higher")
    add("--keep", action="store_true", help="leave in S3 what the run has written")
    add("--names", action="store_true", help="leave names of account, role and bucket in the pages")
    add(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="for accept.json and accept.html; default: one with the run's name",
    )
    add("--look-every", type=float, default=10.0, metavar="S", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if bool(args.subnets) != bool(args.security_groups):
        parser.error("--subnets and --security-groups: wanted both or neither")
    if args.at_once < 2:
        parser.error(f"--at-once {args.at_once}: wanted at least 2, as each job has two hosts")
    return args


def run(args: argparse.Namespace) -> int:
    """Do what was asked for; return the exit code: 0 if all cases were as expected, 1 if not, 2 if nothing ran."""
    types = {"": args.instance_type, "gpu": args.gpu, "efa": args.efa}
    options = [name for name, kind in types.items() if kind]
    offline = args.dry_run or args.policy
    sdks = sdk_pythons(args.sdk_python)
    cases, left_out = chosen(args.case, list(sdks), options)
    region = region_of(args)
    account = None if offline else account_of(args, region)
    bucket = args.bucket or (account.usual_bucket() if account else f"sagemaker-{region}-ACCOUNT")
    now = datetime.now()
    types = {name: kind for name, kind in types.items() if kind or not name}
    where = Where(
        pages.stamp(now), args.image, args.role, bucket, types, tuple(args.subnets), tuple(args.security_groups)
    )
    both = {"role": rights.of_the_role(bucket), "caller": rights.of_the_person(bucket, args.role, bool(sdks))}
    if args.policy:
        print(json.dumps(both, indent=1))
        return 0
    words, dollars = bound(cases, where, args.price)
    if args.dry_run:
        print(
            json.dumps({"rights": both, "requests": [request(case, where) for case in cases if not case.sdk]}, indent=1)
        )
    print(f"{len(cases)} jobs of two hosts each in {region}: {words}", file=sys.stderr)
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    if args.dry_run:
        return 0
    if args.budget is not None and (dollars is None or dollars > args.budget):
        raise ValueError(f"the bound is {words}; wanted at most ${args.budget:g}: name fewer cases, or pass --price")
    if not args.yes:
        raise ValueError("nothing was submitted; wanted --yes, which costs up to the amount above")
    assert account
    return on_sagemaker(args, account, where, cases, sdks, left_out)


def on_sagemaker(
    args: argparse.Namespace,
    account: Account,
    where: Where,
    cases: Sequence[Case],
    sdks: dict[str, str],
    left_out: Sequence[str],
) -> int:
    """Submit the jobs, wait for them, write the pages, and clean up."""
    upload(account, where, cases)
    runs = Run(account, where, cases, sdks, args.at_once, args.look_every, say=lambda text: print(text, flush=True))
    interrupted = False
    try:
        runs.all()
    except KeyboardInterrupt:
        interrupted = True
    code, verdict = verdict_of(runs.jobs, interrupted)
    beliefs = compare({job.case.name: job for job in runs.jobs if not job.not_run})
    found = pages.result(where, account.region, runs.jobs, left_out, beliefs, verdict=verdict)
    found = found if args.names else pages.anonymous(found, where)
    for path in pages.write(args.output or Path(where.run), found):
        print(f"wrote {path}")
    print(f"\n{pages.table(found['cases'])}\n")
    for each in found["beliefs"]:
        if each["so"] is False:
            print(f"not as believed: {each['text']}: found {each['found']}")
    if args.keep or interrupted:  # jobs that are being stopped still write
        print(f"left in S3: {where.prefix}")
    else:
        print(f"deleted {clean(account, where, runs.jobs)} objects in S3; the logs stay in CloudWatch")
    print(verdict)
    return code


def verdict_of(jobs: Sequence[Job], interrupted: bool) -> tuple[int, str]:
    """Return the exit code and the last line."""
    outcomes = [outcome(job) if job.done else "not run: interrupted" for job in jobs]
    failed = [job.case.name for job, each in zip(jobs, outcomes, strict=True) if each == "FAILED"]
    ran = sum(not each.startswith("not run") for each in outcomes)
    words = f"{ran - len(failed)} of {ran} cases as expected" + (f"; FAILED: {', '.join(failed)}" if failed else "")
    refused = [job.case.name for job in jobs if job.not_run]
    words += f"; not run: {', '.join(refused)}" if refused else ""
    if interrupted:
        return 130, f"interrupted, all jobs were stopped; {words}"
    return int(bool(failed or refused or not ran)), words


def bound(cases: Sequence[Case], where: Where, price: float | None) -> tuple[str, float | None]:
    """Return how long the jobs may run at most, in words, and what that costs in dollars; None if it is not known."""
    hours = sum(case.max_run * case.hosts for case in cases) / 3600
    prices = [price or PRICES.get(where.type_of(case)) for case in cases]
    kept = sum(case.keep_alive * case.hosts for case in cases) / 3600
    words = f"at most {hours + kept:.1f} instance hours"
    if None in prices:
        return f"{words}; found no price for these types, wanted --price", None
    dollars = sum(
        (case.max_run + case.keep_alive) * case.hosts / 3600 * (each or 0)
        for case, each in zip(cases, prices, strict=True)
    )
    return f"{words}, ${dollars:.2f}", dollars


def region_of(args: argparse.Namespace) -> str:
    """Return the region of the jobs. Raise ValueError if there is none, or the image is in another."""
    import boto3

    found = args.region or boto3.session.Session(profile_name=args.profile).region_name
    if not found:
        raise ValueError("found no region; wanted --region, or one in your AWS configuration")
    of_image = REGION_OF_IMAGE.match(args.image)
    if of_image and of_image[1] != found:
        raise ValueError(f"the image is in {of_image[1]}, the jobs would be in {found}; wanted the same region")
    return str(found)


def account_of(args: argparse.Namespace, region: str) -> Account:
    import boto3

    if args.profile:
        os.environ["AWS_PROFILE"] = args.profile  # for the SDKs, too
    return Account(boto3.session.Session(region_name=region))


def sdk_pythons(pythons: Sequence[str]) -> dict[str, str]:
    """Return a Python for each SDK that is installed in one of these, or in this."""
    asks = "import importlib.util as u; print('v3' if u.find_spec('sagemaker.train') else 'v2')"
    found = {}
    if importlib.util.find_spec("sagemaker") or pythons:
        for python in (*pythons, sys.executable):
            asked = subprocess.run([python, "-c", asks], capture_output=True, text=True)
            if asked.returncode == 0:
                found.setdefault(asked.stdout.strip(), python)
    return found


if __name__ == "__main__":
    sys.exit(main())
