"""The outcome table: all cases. docs/outcomes.md shows the same rows."""

from outcomes.outside import (
    hosts_that_come_back,
    hosts_that_go,
    hosts_that_have_too_little,
    hosts_that_never_come,
    mpirun_that_does_not_end,
    output_that_nobody_reads,
    processes_that_die,
    stops,
    stops_that_cross_a_failure,
    what_cannot_be_killed,
    work_outside_the_process_group,
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
    *work_outside_the_process_group(),
    *what_cannot_be_killed(),
    *mpirun_that_does_not_end(),
    *stops_that_cross_a_failure(),
    *output_that_nobody_reads(),
    *disks(),
    *hosts_that_have_too_little(),
)
