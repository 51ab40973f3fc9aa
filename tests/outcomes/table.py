"""The outcome table: all cases. docs/outcomes.md shows the same rows."""

from outcomes.outside import (
    hosts_that_come_back,
    hosts_that_go,
    hosts_that_never_come,
    output_that_nobody_reads,
    processes_that_die,
    stops,
)
from outcomes.scripts import deeds, disks, failures_under_stubborn_others, restarts

CASES = (
    *deeds(),
    *failures_under_stubborn_others(),
    *restarts(),
    *processes_that_die(),
    *hosts_that_go(),
    *hosts_that_come_back(),
    *hosts_that_never_come(),
    *stops(),
    *output_that_nobody_reads(),
    *disks(),
)
