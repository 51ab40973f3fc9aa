"""Send what hosts print to CloudWatch Logs, and the metrics in it to CloudWatch."""

import re
import threading
import time
from collections import defaultdict
from typing import Any

PLACE = "/aws/sagemaker/TrainingJobs"  # the log group, and the namespace of metrics
AT_ONCE = 150  # metrics in one call


class Logs:
    """The lines of one job, kept until the next `flush`."""

    def __init__(self, job: str, definitions: list[dict[str, str]], logs: Any, cloudwatch: Any) -> None:
        self._job, self._logs, self._cloudwatch = job, logs, cloudwatch
        self._definitions = [(each["Name"], re.compile(each["Regex"])) for each in definitions]
        self._lock = threading.Lock()
        self._lines: dict[str, list[dict[str, Any]]] = defaultdict(list)  # by stream
        self._values: list[dict[str, Any]] = []
        self.final: dict[str, dict[str, Any]] = {}  # the last value of each metric, as in FinalMetricDataList

    def open(self, stream: str) -> None:
        try:
            self._logs.create_log_group(logGroupName=PLACE)
        except self._logs.exceptions.ResourceAlreadyExistsException:
            pass
        self._logs.create_log_stream(logGroupName=PLACE, logStreamName=stream)

    def line(self, stream: str, text: str) -> None:
        """Keep a line, and what the metrics' regular expressions find in it."""
        now = time.time()
        with self._lock:
            if text:  # CloudWatch Logs takes no empty event
                self._lines[stream].append({"timestamp": int(now * 1000), "message": text})
            for name, regex in self._definitions:
                for found in regex.finditer(text):
                    try:
                        value = float(found[1])
                    except (ValueError, IndexError):
                        continue
                    self._values.append(
                        {
                            "MetricName": name,
                            "Dimensions": [{"Name": "TrainingJobName", "Value": self._job}],
                            "Timestamp": now,
                            "Value": value,
                        }
                    )
                    self.final[name] = {"MetricName": name, "Value": value, "Timestamp": now}

    def flush(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, defaultdict(list)
            values, self._values = self._values, []
        for stream, events in lines.items():
            self._logs.put_log_events(logGroupName=PLACE, logStreamName=stream, logEvents=events)
        for first in range(0, len(values), AT_ONCE):
            self._cloudwatch.put_metric_data(Namespace=PLACE, MetricData=values[first : first + AT_ONCE])
