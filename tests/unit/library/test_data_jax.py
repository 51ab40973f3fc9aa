"""Test how a script joins the processes of a JAX job; stand-ins for jax and Keras record their calls."""

import sys
from types import SimpleNamespace

import pytest

from sagemaker_tf_data import DataError, even_steps, initialize_jax, places

VARIABLES = {
    "JAX_COORDINATOR_ADDRESS": "algo-1:8476",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
    "JAX_LOCAL_NUM_PROCESSES": "2",
    "JAX_LOCAL_PROCESS_ID": "1",
}
HERE = places.Place(size=4, rank=3, local_size=2, local_rank=1, hosts=2, host=1)


class Jax:
    """A stand-in for jax and Keras."""

    def __init__(self, monkeypatch, backend="jax", late=False):
        self.calls, self.late = [], late
        self.state = SimpleNamespace(client=None)
        jax = SimpleNamespace(
            __version__="0.10.2",
            distributed=SimpleNamespace(initialize=lambda *of: self._initialize("jax", of)),
            process_index=lambda: 3,
            process_count=lambda: 4,
            local_device_count=lambda: 1,
            device_count=lambda: 4,
            default_backend=lambda: "cpu",
        )
        keras = SimpleNamespace(
            __version__="3.15.1",
            config=SimpleNamespace(backend=lambda: backend),
            distribution=SimpleNamespace(initialize=lambda *of: self._initialize("keras", of)),
        )
        monkeypatch.setitem(sys.modules, "jax", jax)
        monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=self.state))
        if backend:
            monkeypatch.setitem(sys.modules, "keras", keras)
        else:
            monkeypatch.delitem(sys.modules, "keras", raising=False)

    def _initialize(self, who, arguments):
        if self.late:
            raise RuntimeError("jax.distributed.initialize() must be called before any JAX calls that ...")
        self.calls.append((who, *arguments))
        self.state.client = object()


def test_single_process_script_does_not_initialize_jax(monkeypatch, capsys):
    jax = Jax(monkeypatch)
    assert initialize_jax({}) == places.Place()
    assert (jax.calls, capsys.readouterr().out) == ([], "")


@pytest.mark.parametrize(("backend", "who", "found"), [("jax", "keras", ", Keras 3.15.1"), ("", "jax", "")])
def test_jax_is_initialized_once_through_keras_if_present(monkeypatch, capsys, backend, who, found):
    jax = Jax(monkeypatch, backend)
    assert initialize_jax(VARIABLES) == initialize_jax(VARIABLES) == HERE
    assert jax.calls == [(who, "algo-1:8476", 4, 3)]
    line = f"jax 0.10.2{found}: process 3 of 4, with 1 of 4 devices (cpu)\n"
    assert capsys.readouterr().out == 2 * line


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"backend": "tensorflow"}, "Keras on its tensorflow backend; wanted KERAS_BACKEND=jax"),
        ({"late": True}, r"was called too late: .* call it first, before jax\.devices\(\)"),
    ],
)
def test_error_of_jax_initialization_names_the_remedy(monkeypatch, options, error):
    Jax(monkeypatch, **options)
    with pytest.raises(DataError, match=error):
        initialize_jax(VARIABLES)


def test_missing_jax_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(DataError, match=r"needs jax .* wanted it in the image or in requirements\.txt"):
        initialize_jax(VARIABLES)


def test_processes_that_did_not_join_jax_are_refused(monkeypatch, tmp_path):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "jax._src.distributed", raising=False)
    monkeypatch.delitem(sys.modules, "horovod.tensorflow", raising=False)
    with pytest.raises(DataError, match=r"4 processes, but JAX is not initialised: call initialize_jax\(\) first"):
        even_steps("none")
