"""Starts our image's launcher where SageMaker's SDK 3 would start a driver of its own: copy this folder to your script.

    from tf_launcher import Launcher

    source = SourceCode(source_dir="src", entry_script="train.py")
    ModelTrainer(training_image=image, source_code=source, distributed=Launcher(mode="ps"), compute=compute).train()

docs/sagemaker.md says what the SDK does with it.
"""

from pathlib import Path
from typing import Literal

from sagemaker.train.distributed import DistributedConfig

DRIVERS = "/opt/ml/input/data/sm_drivers/distributed_drivers"  # where a container finds the folder `driver`


class Launcher(DistributedConfig):
    """The distribution for our launcher. Its other settings go into `environment`, as usual."""

    mode: Literal["single", "ps", "mwms", "mpi", "jax"]
    process_count_per_node: int | None = None  # ranks, processes or workers, called as in the SDK's own classes

    @property
    def driver_dir(self) -> str:
        return str(Path(__file__).parent / "driver")

    @property
    def driver_script(self) -> str:
        """Return the text that the SDK appends to `python DRIVERS/` in a bash script.

        That bash is process 1, and would keep SageMaker's SIGTERM to itself. So the first word only checks, with the
        script's own care for errors, and then the launcher takes the place of bash.
        """
        return f"launch.py --check; exec $SM_PYTHON_CMD {DRIVERS}/launch.py"
