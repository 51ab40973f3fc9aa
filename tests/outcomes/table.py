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

_CASES = {
    maker: tuple(maker())
    for maker in (
        deeds,
        failures_under_stubborn_others,
        restarts,
        processes_that_die,
        hosts_that_go,
        hosts_that_come_back,
        hosts_that_never_come,
        stops,
        work_outside_the_process_group,
        what_cannot_be_killed,
        mpirun_that_does_not_end,
        stops_that_cross_a_failure,
        output_that_nobody_reads,
        disks,
        hosts_that_have_too_little,
    )
}
CASES = tuple(case for cases in _CASES.values() for case in cases)

_PARTS = {
    "What a script does": (deeds, failures_under_stubborn_others, restarts),
    "Other processes end": (processes_that_die,),
    "Hosts go, come back, or never come": (hosts_that_go, hosts_that_come_back, hosts_that_never_come),
    "SIGTERM": (stops, work_outside_the_process_group, stops_that_cross_a_failure),
    "Processes that do not end": (what_cannot_be_killed, mpirun_that_does_not_end),
    "Output, disks and limits of a host": (output_that_nobody_reads, disks, hosts_that_have_too_little),
}
# The same cases, by what happens: {title: cases}
PARTS = {title: tuple(case for maker in makers for case in _CASES[maker]) for title, makers in _PARTS.items()}
