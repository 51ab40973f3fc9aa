"""Define the phases of a job, as one host sees them. Only `Facts.phase` derives how far the job is."""

from entrypoint.base.python310 import StrEnum


class Phase(StrEnum):
    """Name how far the job is. If two phases are true at once, the later one in this list counts.

    STARTING --the user's first program starts here--> RUNNING
     ^    |                                            |    |
     |    +---------- the coordinator settles ---------+    |
     |    |           on another attempt                    |
     |    v                                                 |
    RESTARTING: what is left of the last attempt ends       |
          |                                                 |
          +--SIGTERM to any host--> STOPPING <--SIGTERM-----+
          |                            |                    |
          +-----------------> ENDING <-+---------- verdict -+
                                |
              nothing runs here, and the others had time for their last reports
                                v
                              ENDED
    """

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    ENDING = "ending"
    ENDED = "ended"

    @property
    def is_active(self) -> bool:
        """Return whether programs start and run in this phase, so that an end is a fault."""
        return self in (Phase.STARTING, Phase.RUNNING)
