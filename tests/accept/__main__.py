"""Start the acceptance run: training jobs on SageMaker, in your account, that check the promises of this project.

    python tests/accept --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1 --role ROLE-ARN --dry-run
    python tests/accept --image ... --role ... --yes
    python tests/accept --image ... --role ... --yes single raises stopped

It needs boto3 and a checkout of this project, no SDK. Nothing is submitted without --yes. docs/accept.md has the cases,
the cost, and what AWS must allow.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError

sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder: our modules are accept.NAME
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from accept import pages, rights  # noqa: E402  (after the path is set)
from accept.account import Account, Refused  # noqa: E402
from accept.beliefs import compare  # noqa: E402
from accept.cases import Case, chosen  # noqa: E402
from accept.judging import outcome  # noqa: E402
from accept.requests import Where, request  # noqa: E402
from accept.running import Run, clean, upload  # noqa: E402

# Dollars for an hour of on-demand training in us-east-1, written down without looking at AWS's list: check it.
PRICES = {
    "ml.m5.large": 0.115,
    "ml.m5.xlarge": 0.23,
    "ml.c5.xlarge": 0.204,
    "ml.g4dn.xlarge": 0.736,
    "ml.g5.xlarge": 1.408,
}
OF_PRICES = "us-east-1"
ENDING_S = 180  # what a job may take beyond its limit: 120 s of grace, and the upload
ROLE = re.compile(r"arn:[\w-]+:iam::\d{12}:role/.+")
REGION_OF_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.([\w-]+)\.amazonaws\.com")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    for ends in (signal.SIGTERM, signal.SIGHUP):  # jobs are stopped as on Ctrl-C
        signal.signal(ends, signal.default_int_handler)
    try:
        return run(args)
    except (Refused, ValueError, BotoCoreError) as error:
        print(f"tests/accept: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python tests/accept", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("case", nargs="*", help="cases to run; default: all")
    add("--image", required=True, metavar="URI", help="in ECR, in the job's region")
    add("--role", required=True, metavar="ARN", help="of the role that the jobs get")
    add("--yes", action="store_true", help="submit the jobs, which costs money")
    add("--dry-run", action="store_true", help="print the cost and the cases, and call nothing of AWS")
    add("--requests", action="store_true", help="with --dry-run: print rights and requests as JSON, and nothing else")
    add("--policy", action="store_true", help="print the IAM policies of role and caller as JSON, and nothing else")
    add("--region", help="default: that of the image, or of your AWS configuration")
    add("--profile", help="of your AWS configuration")
    add("--bucket", help="for code, data and output; default: sagemaker-REGION-ACCOUNT, which the SDKs use")
    add("--instance-type", default="ml.m5.large", metavar="TYPE", help="default: ml.m5.large")
    add("--gpu", default="", metavar="TYPE", help="run the cases for GPUs, too, on instances of this type")
    add("--efa", default="", metavar="TYPE", help="run the case for EFA, too")
    add("--subnets", nargs="+", default=[], metavar="ID")
    add("--security-groups", nargs="+", default=[], metavar="ID")
    add("--sdk-python", action="append", default=[], metavar="PYTHON", help="a Python with SageMaker's SDK; repeatable")
    add("--at-once", type=int, default=8, metavar="N", help="how many instances run at once, if AWS allows; default: 8")
    add("--price", action="append", default=[], type=price, metavar="TYPE=USD", help="of an instance hour; repeatable")
    add("--budget", type=float, metavar="USD", help="submit nothing if the bound is higher")
    add("--keep", action="store_true", help="leave in S3 what the run has written")
    add("--names", action="store_true", help="leave names of account, role and bucket in the pages")
    add("--output", type=Path, metavar="FOLDER", help="for accept.json and accept.html; default: the run's name")
    add("--look-every", type=float, default=10.0, metavar="S", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if bool(args.subnets) != bool(args.security_groups):
        parser.error("--subnets and --security-groups: wanted both or neither")
    if not ROLE.fullmatch(args.role):
        parser.error(f"--role {args.role}: wanted an ARN, such as arn:aws:iam::123456789012:role/Training")
    if args.requests and not args.dry_run:
        parser.error("--requests: wanted --dry-run with it")
    if args.at_once < 2:
        parser.error(f"--at-once {args.at_once}: wanted at least 2, as each job has two hosts")
    return args


def price(text: str) -> tuple[str, float]:
    """Return the two sides of TYPE=USD."""
    kind, _, dollars = text.partition("=")
    try:
        return kind, float(dollars)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}; wanted TYPE=USD, such as ml.m5.large=0.128") from None


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code: 0 if all cases were as expected, 1 if not, 2 if no case ran."""
    types = {name: kind for name, kind in (("", args.instance_type), ("gpu", args.gpu), ("efa", args.efa)) if kind}
    sdks = sdk_pythons(args.sdk_python)
    cases, left_out = chosen(args.case, list(sdks), list(types))
    region = region_of(args)
    bucket = args.bucket or f"sagemaker-{region}-{args.role.split(':')[4]}"  # the SDKs' default
    name = pages.stamp(datetime.now())
    where = Where(name, args.image, args.role, bucket, types, tuple(args.subnets), tuple(args.security_groups))
    both = {"role": rights.of_the_role(where), "caller": rights.of_the_caller(where, bool(sdks))}
    if args.policy:
        print(json.dumps(both, indent=1))
        return 0
    words, dollars = bound(cases, where, region, dict(args.price))
    if args.requests:
        requests = [request(case, where) for case in cases if not case.sdk]
        print(json.dumps({"rights": both, "requests": requests}, indent=1))
        return 0
    print(f"{len(cases)} jobs of two hosts each in {region}: {words}", file=None if args.dry_run else sys.stderr)
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    if args.dry_run:
        width = max(len(case.name) for case in cases)
        print(*(f"  {case.name:<{width}}  {case.shows}" for case in cases), sep="\n")
        print("nothing was submitted: --yes submits these jobs, --dry-run --requests prints their requests and rights")
        return 0
    if args.budget is not None and (dollars is None or dollars > args.budget):
        raise ValueError(f"the bound is {words}; wanted at most ${args.budget:g}: name fewer cases, or pass --price")
    if not args.yes:
        raise ValueError("nothing was submitted; wanted --yes, which costs up to the amount above")
    if args.profile:
        os.environ["AWS_PROFILE"] = args.profile  # for the SDKs, too
    account = Account(boto3.session.Session(region_name=region))
    account.check_bucket(bucket)
    return on_sagemaker(args, Run(account, where, cases, sdks, args.at_once, args.look_every), left_out)


def on_sagemaker(args: argparse.Namespace, jobs: Run, left_out: Sequence[str]) -> int:
    """Submit the jobs, wait for them, write the pages, and clean up; return the exit code."""
    where, interrupted = jobs.where, False
    try:
        upload(jobs.account, where, jobs.cases)
        jobs.all()
    except KeyboardInterrupt:
        interrupted = True
    code, verdict = verdict_of(jobs, interrupted)
    beliefs = compare({job.case.name: job for job in jobs.jobs if not job.not_run})
    found = pages.result(where, jobs.account.region, jobs.jobs, left_out, beliefs, verdict=verdict)
    found = found if args.names else pages.anonymous(found, where)
    for path in pages.write(args.output or Path(where.run), found):
        print(f"wrote {path}")
    print(f"\n{pages.table(found['cases'])}\n")
    for each in found["beliefs"]:
        if each["so"] is False:
            print(f"not as believed: {each['text']}: found {each['found']}")
    left = f"left in S3: {where.prefix}"
    if args.keep or interrupted:  # jobs that are being stopped still write
        print(left)
    else:
        try:
            print(f"deleted {clean(jobs.account, where)} objects in S3; the logs stay in CloudWatch")
        except Refused as refused:
            print(f"{left}: {refused}")
    print(verdict)
    return code


def verdict_of(jobs: Run, interrupted: bool) -> tuple[int, str]:
    """Return the exit code and the last line."""
    outcomes = {job.case.name: outcome(job) if job.done else "not run: interrupted" for job in jobs.jobs}
    ran = [name for name, each in outcomes.items() if not each.startswith("not run")]
    failed = [name for name in ran if outcomes[name] == "FAILED"]
    refused = [job.case.name for job in jobs.jobs if job.not_run and not job.excused]
    words = f"{len(ran) - len(failed)} of {len(ran)} cases as expected"
    words += f"; FAILED: {', '.join(failed)}" if failed else ""
    words += f"; not run: {', '.join(refused)}" if refused else ""
    if jobs.not_stopped:
        words = f"NOT STOPPED: {', '.join(jobs.not_stopped)}; {words}"
    if interrupted:
        return 130, f"interrupted, SageMaker was asked to stop all jobs; {words}"
    return int(bool(failed or refused or not ran)), words


def bound(cases: Sequence[Case], where: Where, region: str, prices: Mapping[str, float]) -> tuple[str, float | None]:
    """Return the maximum run time of all jobs, in words, and its cost in dollars; None if that is unknown."""
    known = {**(PRICES if region == OF_PRICES else {}), **prices}
    hours = [(case.max_run + case.keep_alive + ENDING_S) * case.hosts / 3600 for case in cases]
    words = f"at most {sum(hours):.1f} instance hours"
    unknown = sorted({where.type_of(case) for case in cases} - set(known))
    if unknown:
        example = f", such as --price {unknown[0]}={PRICES[unknown[0]]} in {OF_PRICES}" if unknown[0] in PRICES else ""
        return f"{words}; wanted --price TYPE=USD for {', '.join(unknown)} in {region}{example}", None
    dollars = sum(known[where.type_of(case)] * each for case, each in zip(cases, hours, strict=True))
    return f"{words}, ${dollars:.2f}", dollars


def region_of(args: argparse.Namespace) -> str:
    """Return the region of the jobs. Raise ValueError if there is none, or the image is in another."""
    of_image = REGION_OF_IMAGE.match(args.image)
    found = args.region or (of_image and of_image[1]) or boto3.session.Session(profile_name=args.profile).region_name
    if not found:
        raise ValueError("found no region; wanted --region, or one in your AWS configuration")
    if of_image and of_image[1] != found:
        raise ValueError(f"the image is in {of_image[1]}, the jobs would be in {found}; wanted the same region")
    return str(found)


def sdk_pythons(pythons: Sequence[str]) -> dict[str, str]:
    """Return {SDK: a Python that has it} for these Pythons and this one. Raise ValueError if one of them has no SDK."""
    asks = "import importlib.util as u; print('v3' if u.find_spec('sagemaker.train') else 'v2')"
    found: dict[str, str] = {}
    for python in (*pythons, sys.executable):
        try:
            asked = subprocess.run([python, "-c", asks], capture_output=True, text=True)
        except OSError as error:
            raise ValueError(f"--sdk-python {python}: {error.strerror}") from None
        if asked.returncode == 0:
            found.setdefault(asked.stdout.split()[-1], python)  # SDK v2 prints lines when it is imported
        elif python != sys.executable:
            raise ValueError(f"--sdk-python {python}: found no SageMaker SDK in it; wanted one that has v2 or v3")
    return found


if __name__ == "__main__":
    sys.exit(main())
