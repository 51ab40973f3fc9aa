"""Send what hosts print to CloudWatch Logs, and find the metrics in it."""

import contextlib
import re
import threading
import time
from collections import defaultdict
from typing import Any

GROUP = "/aws/sagemaker/TrainingJobs"


class Logs:
    """The lines of one job, kept until the next `flush`."""

    def __init__(self, definitions: list[dict[str, str]], logs: Any) -> None:
        self._logs = logs
        self._definitions = [(each["Name"], re.compile(each["Regex"])) for each in definitions]
        self._lock = threading.Lock()
        self._lines: dict[str, list[dict[str, Any]]] = defaultdict(list)  # by stream
        self.final: dict[str, dict[str, Any]] = {}  # the last value of each metric, as in FinalMetricDataList

    def open(self, stream: str) -> None:
        with contextlib.suppress(self._logs.exceptions.ResourceAlreadyExistsException):
            self._logs.create_log_group(logGroupName=GROUP)
        self._logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)

    def line(self, stream: str, text: str) -> None:
        """Keep a line, and what the metrics' regular expressions find in it."""
        now = time.time()
        with self._lock:
            if text:  # CloudWatch Logs takes no empty event
                self._lines[stream].append({"timestamp": int(now * 1000), "message": text})
            for name, regex in self._definitions:
                for found in regex.finditer(text):
                    with contextlib.suppress(ValueError, IndexError):
                        self.final[name] = {"MetricName": name, "Value": float(found[1]), "Timestamp": now}

    def flush(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, defaultdict(list)
        for stream, events in lines.items():
            self._logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)
