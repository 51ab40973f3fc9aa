"""The phases of a job, as one host sees them. `Facts.phase` derives it; nothing else says how far the job is."""

from entrypoint.base.python310 import StrEnum


class Phase(StrEnum):
    """How far the job is. Of two that are true at once, the later one in this list is meant.

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
              nothing runs here, and the others had time for their last words
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
        """Whether programs are to start and to run, so that an end is a fault."""
        return self in (Phase.STARTING, Phase.RUNNING)
