"""Test a ps job that saves checkpoint parts and model on NFS. Each host mounts it separately."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import resources, write_config
from sent import PARAMETER_SERVER, by_sdk
from virtual_hosts import Share, VirtualHosts, nfs_share, what_is_missing, why_no_boot

ESTIMATOR = Path(__file__).resolve().parents[1] / "programs/foreign/estimator.py"
HOSTS = ("algo-1", "algo-2")
PATIENT = {"ENTRYPOINT_PEER_TIMEOUT": "120", "ENTRYPOINT_TF1": "shim"}
PATIENCE = 900.0  # seconds for one job: these kernels have one processor each, and are slow
# Threads on a host of one CPU, which these hosts found too few: unit/launcher/host/test_machine.py.
pytestmark = [pytest.mark.more, pytest.mark.tensorflow, pytest.mark.timeout(3 * PATIENCE)]


@pytest.fixture
def share(image: str, tmp_path: Path) -> Iterator[Share]:
    if missing := what_is_missing():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"hosts that mount NFS take {missing}")
    if missing := why_no_boot():  # no package mends that
        pytest.skip(f"hosts that mount NFS take {missing}")
    with nfs_share(image, tmp_path) as made:
        yield made


def hosts_of(folder: Path, steps: int) -> dict[str, Path]:
    """Return the /opt/ml of each host."""
    for host in HOSTS:
        ml = folder / host / "ml"
        write_config(
            ml / "input/config",
            resources=resources(HOSTS, host),
            hyperparameters=by_sdk("estimator.py", PARAMETER_SERVER, model_dir="/opt/ml/checkpoints", steps=steps),
        )
        (ml / "code").mkdir()
        shutil.copy(ESTIMATOR, ml / "code")
        (ml / "output/data").mkdir(parents=True)
    return {host: folder / host / "ml" for host in HOSTS}


def test_each_ps_writes_its_part_and_the_next_job_resumes(share: Share, tmp_path: Path) -> None:
    """The chief on another host merges the parts, and exports its model to the same share."""
    import tensorflow as tf

    kept = None  # the step of the first job's last checkpoint; workers may go some steps too far
    for steps in (100, 200):
        folders = hosts_of(tmp_path / f"to-{steps}", steps)
        with VirtualHosts(share, folders, ("checkpoints", "model"), **PATIENT) as job:
            assert job.wait(PATIENCE) == dict.fromkeys(HOSTS, 0)
            for host in HOSTS:
                assert re.search(
                    rf"^{share.server}:/export on .* type nfs4 \(.*vers=4\.2,", job.log(host), re.MULTILINE
                )
            restored = re.findall(r"Restoring parameters from /opt/ml/checkpoints/model\.ckpt-(\d+)", job.log("algo-1"))
            assert kept is None or restored[0] == kept  # before it trains
        files = share.sh("find checkpoints -type f")
        kept = str(max(int(step) for step in re.findall(r"model\.ckpt-(\d+)\.index", files)))
        assert int(kept) >= steps
        parts = set(re.findall(rf"model\.ckpt-{kept}\.data-(\d+-of-\d+)$", files, re.MULTILINE))
        assert parts == {"00000-of-00002", "00001-of-00002"}
    subprocess.run(["docker", "cp", f"{share.network}:/export/model", tmp_path / "model"], check=True, timeout=60)
    _, model = sorted((tmp_path / "model").glob("*/saved_model.pb"))  # one of each job
    serve = tf.saved_model.load(str(model.parent)).signatures["serving_default"]
    (chances,) = serve(values=tf.ones([3, 8])).values()
    assert chances.shape[0] == 3 and all(0 < float(chance) < 1 for chance in tf.reshape(chances, [-1]))
