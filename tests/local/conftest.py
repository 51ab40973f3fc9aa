"""The local ring: real processes and sockets on loopback."""

import pytest
from hosts import Hosts


@pytest.fixture
def hosts(tmp_path, no_leftovers, request):
    """Starts hosts of one job; prints all logs if the test fails; nothing is left when it ends."""
    made: list[Hosts] = []

    def start(count: int = 1, program: str = "train.py", **options) -> Hosts:
        job = Hosts(tmp_path / f"job{len(made)}", count, program, **options)
        made.append(job)
        return job.__enter__()

    yield start
    for job in made:
        job.ports.close()
        alive = [host.name for host in job.hosts.values() if host.process.poll() is None]
        print(job)
        for name in alive:
            job.hosts[name].process.kill()
            job.hosts[name].process.wait()
        if alive:  # the test failed before they ended: nobody is there to end their processes
            job.__exit__()
