"""List the cases for a GPU, their expected results there and on CPUs, and their time limits.

`running.py` replaces words in braces: {programs}, {examples} and {scratch} are folders, {horovod} that of Horovod's
tests. A command that begins with "local" is for `entrypoint local`, others are for Python.
"""

import shlex
from dataclasses import dataclass, field
from typing import Any

from gpu.judge import Outcome

Command = tuple[str, ...]

ON_THE_GPU = "on the GPU"  # the log ends with the tasks that had memory of it: "on the GPU: worker/0"
LINES = ("2.21", "2.14")
ALL = (*LINES, "2.21-on")  # our entrypoint on the stand-in for AWS's image


@dataclass(frozen=True)
class Case:
    """A row of the table. `cpu`: the expected result without a GPU; None if the case needs one.

    `limit`: seconds for all commands. `images`: where it runs with a GPU, whose minutes are few; without one it runs in
    any. `needs`: modules of Python, programs, or "horovod's tests". `alone`: it measures, or takes all of the GPU.
    `without`: a pattern of files in the Python packages that are taken away meanwhile. `shows`: what of the log is put
    into the table.
    """

    name: str
    commands: tuple[Command, ...]
    gpu: Outcome
    cpu: Outcome | None = None
    limit: float = 120.0
    images: tuple[str, ...] = ("2.21",)
    needs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    without: str = ""
    shows: tuple[str, ...] = ()

    @property
    def asks_who(self) -> bool:
        """Return whether GPU memory of processes must be sampled for the case."""
        return any(ON_THE_GPU in each for each in (*self.gpu.says, *self.gpu.never))


def local(program: str, options: str, output: str = "job", **environment: str) -> Command:
    """Return the command of an `entrypoint local` job with these options and a separate `output` folder."""
    variables = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    return ("local", program, *shlex.split(options), *variables, "--output", f"{{scratch}}/{output}")


HOROVOD = ("horovod", "mpi4py", "mpirun")
TWO_RANKS = "--hosts 1 --mode mpi --processes-per-host 2"  # that are two machines to NCCL
HOROVOD_JOB = "{programs}/horovod_job.py"
MIRRORED = "{programs}/mirrored_nccl.py"
# Keras 2 on all lines: what fits on several hosts. It is one variable more for 2.14, where it says nothing.
KERAS2 = {"TF_USE_LEGACY_KERAS": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
FACTS = ("product", "convolution", "solved", "cholesky", "sparse", "compiled", "fourier")
SIZES = tuple(4 * size for size in (256, 4096, 65536, 2**18, 2**20, 2**22, 2**24))


def facts(device: str) -> Outcome:
    return Outcome(says=tuple(f"^{fact}: right on {device}$" for fact in FACTS))


def averaged(device: str, *more: str) -> Outcome:
    sums = [rf"allreduce of {size} B right on {device}" for size in SIZES]
    return Outcome(says=(*sums, "rank 0: weights are equal", "rank 1: weights are equal", *more), never=("WRONG",))


def mixed(device: str) -> Outcome:
    ranks = [rf"rank {rank}, mixed_bfloat16: weights equal, learned on {device}" for rank in (0, 1)]
    return Outcome(says=tuple(ranks), never=("DIFFERENT", "NOT LEARNED"))


def resumed(device: str) -> Outcome:
    """Return a case that kills a process, which is restarted, and then the job; the next job resumes."""
    first = rf"begins at step 0 on {device}"
    again = rf"begins at step [1-9]\d* on {device}"
    says = (rf"(?s){first}.*{again}.*{again}", "after 60 steps the weights are right")
    return Outcome(says=says, never=("WRONG",), codes=(137, 0))


def summed(device: str, *more: str) -> Outcome:
    sums = [rf"worker {task} of 2: sums right on {device}" for task in (0, 1)]
    return Outcome(says=(*sums, *more), never=("WRONG",))


ON_GPU, ON_CPU = "GPU:0", "CPU:0"
TRAINED = (r"test accuracy=0\.9\d", "distributed: yes")
RAISED = Outcome(says=(r"failed: .*rank 1 .*ValueError: bad batch on purpose",), codes=(1,))
HANGS = {"ENTRYPOINT_HANG_AFTER": "20", "ENTRYPOINT_HANG_ACTION": "fail"}
HUNG = Outcome(says=("no progress", r"rank 1 on algo-1 is in horovod_job\.py"), codes=(72,))
STOPPED = Outcome(says=("no progress", r"rank 1 on algo-1 is in no code \(stopped by a signal\)"), codes=(72,))
WAITED_FOR = Outcome(
    says=("no progress", r"worker/1 on algo-2 is in mirrored_nccl\.py:\d+ <module> \(sleeps\)"), codes=(72,)
)
DIFFER = Outcome(says=("no progress", "in horovod.allreduce", "in horovod.allgather"), codes=(72,))


def of_ranks(
    name: str,
    gpu: Outcome,
    cpu: Outcome | None = None,
    options: str = TWO_RANKS,
    sets: dict[str, str] | None = None,
    **more: Any,
) -> Case:
    """Return the case of a job of Horovod ranks. `sets`: its environment variables."""
    return Case(name, (local(HOROVOD_JOB, options, **(sets or {})),), gpu, cpu, needs=HOROVOD, **more)


# A job that hangs is alone, as the monitor sees the whole GPU.
HANG: dict[str, Any] = {"alone": True, "shows": ("no progress.*",)}


CASES = (
    Case("facts", (("{programs}/facts.py",),), facts(ON_GPU), facts(ON_CPU), images=ALL, shows=(r"^GPU .*",)),
    of_ranks(
        "horovod",
        averaged(ON_GPU, r"rank 1 of 2 sees 1 GPUs, NCCL [1-9]"),
        averaged(ON_CPU),
        images=LINES,
        shows=(r"^.*allreduce of (?:1024|67108864) B right on \S+, (.*)",),
    ),
    of_ranks(  # each rank is given a part of the GPUs, of which there is one
        "pin_gpu",
        averaged(ON_GPU, "CUDA_VISIBLE_DEVICES=0", r"rank 1 of 2 sees 1 GPUs"),
        averaged(ON_CPU, r"rank 1 of 2 sees 0 GPUs"),
        sets={"ENTRYPOINT_PIN_GPUS": "always"},
    ),
    of_ranks("horovod, two hosts", averaged(ON_GPU), averaged(ON_CPU), "--hosts 2 --mode mpi"),
    Case(
        "mixed precision",
        (local("{programs}/mixed.py", TWO_RANKS),),
        mixed(ON_GPU),
        mixed(ON_CPU),
        images=LINES,
        needs=HOROVOD,
        shows=(r"rank 0, (mixed_\S+: .*)",),
    ),
    Case(
        "horovod's own tests",
        (local("{programs}/horovods_own.py", TWO_RANKS, HOROVOD_TESTS="{horovod}", RING_PACKAGES="{packages}"),),
        Outcome(says=tuple(rf"rank {rank}: [1-9]\d+ passed, \d+ skipped, 0 failed" for rank in (0, 1))),
        limit=240,
        images=LINES,
        needs=(*HOROVOD, "horovod's tests"),
        # Open MPI 4.1.4 adds 8 bits by AVX with saturation. A rank that fails alone leaves others waiting.
        environment={"OMPI_MCA_op": "^avx", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60"},
        shows=(r"rank 0: (\d+ passed.*)",),
    ),
    of_ranks("a rank raises", RAISED, RAISED, sets={"DOES": "raises"}),
    of_ranks("a rank hangs", HUNG, HUNG, sets={"DOES": "hangs", **HANGS}, **HANG),
    of_ranks("a rank is stopped in a collective", STOPPED, STOPPED, sets={"DOES": "stopped", **HANGS}, **HANG),
    of_ranks("ranks in different collectives", DIFFER, DIFFER, sets={"DOES": "differs", **HANGS}, **HANG),
    of_ranks(  # as NCCL has it, and nobody has told it otherwise
        "two ranks on one GPU",
        Outcome(says=("ranks are to train on each host, where 1 GPU is", "failed: .*invalid usage"), codes=(1,)),
        sets={"APART": "no"},
    ),
    Case(  # for as long as it takes until "distributed" is judged
        "MultiWorkerMirrored",
        (local("{examples}/digits/train.py", "--hosts 2 --mode mwms --hyperparameters epochs=300", **KERAS2),),
        Outcome(says=TRAINED),
        Outcome(says=TRAINED),
        limit=300,
        images=ALL,
        needs=("sklearn",),
        shows=(r"test accuracy=\S+", r"distributed: .*"),
    ),
    Case(
        "MultiWorkerMirrored by NCCL",
        (local(MIRRORED, "--hosts 2 --mode mwms", NCCL_DEBUG="INFO", **KERAS2),),
        summed(ON_GPU, "NCCL INFO .*Init COMPLETE"),
        summed(ON_CPU),
        images=ALL,
        shows=(r"(NCCL version \S+)", "distributed: .*"),
    ),
    Case(  # NCCL's kernel waits on the GPU, which reads as busy all the time
        "a worker hangs while NCCL waits",
        (local(MIRRORED, "--hosts 2 --mode mwms", DOES="hangs", **HANGS, **KERAS2),),
        WAITED_FOR,
        WAITED_FOR,
        images=LINES,
        **HANG,
    ),
    Case(  # of those on the GPU, no one is a server
        "parameter servers",
        (
            ("{examples}/deepfm/make_rows.py", "--rows", "20000", "--output", "{scratch}/rows"),
            local(
                "{examples}/deepfm/train.py",
                "--hosts 2 --mode ps --channel training={scratch}/rows "
                "--hyperparameters epochs=1 sagemaker_entrypoint_ps_workers=server",
                **KERAS2,
            ),
        ),
        Outcome(says=(r"evaluation auc=0\.[5-9]", f"^{ON_THE_GPU}: worker/0"), never=(f"^{ON_THE_GPU}: ps/",)),
        Outcome(says=(r"evaluation auc=0\.[5-9]",)),
        limit=180,
        images=LINES,
        shows=(r"evaluation auc=\S+",),
    ),
    Case(
        "SIGTERM",
        (
            local(
                "{programs}/saves.py",
                "--hosts 2 --mode single --fault 'stop all when \"training on\"'",
                TF_FORCE_GPU_ALLOW_GROWTH="true",
            ),
        ),
        Outcome(says=("training on GPU:0", r"(?s)saved .*saved ", r"GPU memory: \d{1,2} MiB more than before")),
        Outcome(says=("training on CPU:0", r"(?s)saved .*saved ")),
        alone=True,
        shows=(r"saved \d+ bytes in .*",),
    ),
    Case(
        "kills and resumes",
        (
            local(
                "{programs}/resumes.py",
                "--hosts 1 --checkpoints {scratch}/checkpoints "
                "--fault 'kill algo-1:script when step=25' --fault 'kill all when step=45'",
                ENTRYPOINT_RESTARTS="1",
                ENTRYPOINT_RESTART_BACKOFF="0.5",
            ),
            local("{programs}/resumes.py", "--hosts 1 --checkpoints {scratch}/checkpoints", output="next"),
        ),
        resumed(ON_GPU),
        resumed(ON_CPU),
        images=ALL,
        shows=(r"begins at (step \d+)",),
    ),
    Case(
        "two workers on one GPU",
        (local("{programs}/two_workers.py", "--hosts 1 --mode mwms --processes-per-host 2"),),
        Outcome(
            says=(
                "told CUDA_VISIBLE_DEVICES=0 TF_FORCE_GPU_ALLOW_GROWTH=true",
                rf"(?s)computed on {ON_GPU}.*computed on {ON_GPU}",
            )
        ),
        Outcome(says=(rf"(?s)computed on {ON_CPU}.*computed on {ON_CPU}",), never=("CUDA_VISIBLE_DEVICES=0",)),
    ),
    Case(
        "out of GPU memory",
        (local("{programs}/out_of_memory.py", "--hosts 1"),),
        Outcome(says=("failed: .*ResourceExhaustedError",), codes=(1,)),
        alone=True,
        shows=("^failed: .*",),
    ),
    Case(
        "a library is missing",
        (
            local("{programs}/two_workers.py", "--hosts 1"),
            local("{programs}/two_workers.py", "--hosts 1", output="fails", ENTRYPOINT_GPU_CHECK="fail"),
        ),
        Outcome(says=("WARNING: TensorFlow cannot use the GPUs of this job", f"computed on {ON_CPU}"), codes=(0, 78)),
        alone=True,
        without="nvidia/cusparse/lib/libcusolver*",
        shows=(r"1 GPU: .*?\)",),
    ),
    Case(  # of ResNet-50, beside the same by plain Python: nothing is lost
        "speed",
        (("{programs}/speeds.py", "{scratch}", "--", "{entrypoint}"),),
        Outcome(says=(r"of the record: at most (9\d|100) % busy",)),
        limit=240,
        alone=True,
        shows=(r"^of (.*)",),
    ),
    Case(
        "a look by NVML",
        (("{programs}/nvml_look.py",),),
        Outcome(says=(r"every 0\.1 s, all:",)),
        needs=("pynvml", "entrypoint"),
        alone=True,
        shows=(r"^(every .*)",),
    ),
)


def chosen(image: str, names: list[str], gpu: bool) -> list[Case]:
    """Return the cases of these names, or all of an image. Raise ValueError for an unknown name."""
    known = {case.name for case in CASES}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"found the case {', '.join(unknown)}; wanted some of: {', '.join(sorted(known))}")
    if names:
        return [case for case in CASES if case.name in names]
    return [case for case in CASES if not gpu or image in case.images]
