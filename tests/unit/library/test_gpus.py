"""Test `pin_gpu` of sagemaker_tf_data, with a stand-in for TensorFlow with GPUs."""

import sys
import types

import pytest

from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.gpus import pin_gpu


class Config:
    """A stand-in for TensorFlow 2's `tf.config` on a machine with so many GPUs."""

    def __init__(self, gpus: int, started: bool = False) -> None:
        self.gpus = [f"/physical_device:GPU:{number}" for number in range(gpus)]
        self.started, self.visible, self.growing = started, list(self.gpus), []
        self.experimental = self

    def list_physical_devices(self, kind):
        return list(self.gpus) if kind == "GPU" else []

    def set_visible_devices(self, devices, kind):
        if self.started and devices != self.visible:
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        assert kind == "GPU" and set(devices) <= set(self.gpus)
        self.visible = devices

    def set_memory_growth(self, device, enable):
        if self.started:
            raise RuntimeError("Physical devices cannot be modified after being initialized")
        assert device in self.visible and enable
        self.growing.append(device)


@pytest.fixture
def tensorflow(monkeypatch):
    def with_config(config):
        module = types.ModuleType("tensorflow")
        module.config = config
        monkeypatch.setitem(sys.modules, "tensorflow", module)
        return config

    return with_config


@pytest.mark.parametrize(
    "visible, local_rank, expected",
    [
        (8, 3, [3]),  # the launcher leaves all to be seen, as Horovod's own idiom wants it
        (1, 3, [0]),  # the launcher has pinned
        (2, 3, [1]),  # ... with two for each rank: either of them is this rank's alone
        (2, 2, [0]),  # more ranks than GPUs
        (4, None, [0, 1, 2, 3]),  # no rank: the launcher has divided
        (0, 1, []),
        (0, None, []),
    ],
)
def test_process_sees_only_its_own_gpus(tensorflow, visible, local_rank, expected):
    config = tensorflow(Config(visible))
    environ = {} if local_rank is None else {"OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank)}
    wanted = [f"/physical_device:GPU:{number}" for number in expected]
    assert pin_gpu(environ) == config.visible == config.growing == wanted


def test_pin_gpu_after_tensorflow_began_is_refused(tensorflow):
    tensorflow(Config(2, started=True))
    with pytest.raises(DataError, match=r"was called too late.*call it first"):
        pin_gpu({"OMPI_COMM_WORLD_LOCAL_RANK": "0"})


@pytest.mark.tensorflow
def test_pin_gpu_without_gpus_does_nothing():
    pytest.importorskip("tensorflow")
    assert pin_gpu({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}) == []
