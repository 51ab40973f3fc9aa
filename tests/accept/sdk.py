"""Submit a job by one of SageMaker's SDKs, using the example for users, examples/submit.py."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from accept.account import Refused, advice
from accept.cases import Case
from accept.requests import Where

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 60.0  # for an SDK that submits while the run is interrupted


class Submission:
    """A process of the SDK's Python. Its job has the variable ACCEPT_RUN, and a name that the SDK chooses."""

    def __init__(self, case: Case, where: Where, python: str, region: str) -> None:
        self._sdk = case.sdk
        self._folder = tempfile.TemporaryDirectory()
        self.ended = 0.0
        config, self._printed = Path(self._folder.name, "config.yaml"), Path(self._folder.name, "printed")
        place = {"DefaultS3Bucket": where.bucket, "DefaultS3ObjectKeyPrefix": urlsplit(where.prefix).path.lstrip("/")}
        modules = {"Session": place, "TelemetryOptOut": True}
        config.write_text(json.dumps({"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": modules}}}))
        command = [python, str(EXAMPLES / "submit.py"), str(EXAMPLES / "digits" / "train.py"), "--mode", case.mode]
        command += ["--instances", str(case.hosts), "--instance-type", where.type_of(case), "--no-wait"]
        command += ["--max-run", str(case.max_run), "--image", where.image, "--role", where.role, "--region", region]
        command += ["--env", f"ACCEPT_RUN={where.job(case)}"]
        if where.subnets:
            command += ["--subnets", *where.subnets, "--security-groups", *where.groups]
        with self._printed.open("w") as printed:
            self._process = subprocess.Popen(
                command,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must not end it between its request and our knowing of the job
                env={**os.environ, "SAGEMAKER_USER_CONFIG_OVERRIDE": str(config)},
            )

    def has_ended(self) -> bool:
        """Return whether the SDK has submitted its job. Raise Refused with its last line if it has failed."""
        code = self._process.poll()
        if code is None:
            return False
        self.ended = self.ended or time.monotonic()
        if code:
            lines = [line.strip() for line in self._printed.read_text(errors="replace").splitlines() if line.strip()]
            last = lines[-1] if lines else "it printed nothing"
            raise Refused(f"SDK {self._sdk} ended with {code}: {last}" + f" -- {advice(last)}" * bool(advice(last)))
        return True

    def wait(self) -> None:
        """Wait until the SDK has submitted its job; end it if that takes too long."""
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
