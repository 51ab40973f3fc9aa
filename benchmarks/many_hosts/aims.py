"""List the aims at a thousand hosts; importing this starts nothing."""

AIMED_AT = 1000  # hosts
AIMS = {"rendezvous_s": 10.0, "coordinator_cpu_share": 0.20, "told_all_s": 2.0, "plan_s": 0.5}  # at most
