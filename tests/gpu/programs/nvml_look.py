"""Measure the time of one sample of the monitor on a host with a GPU: in NVML, and in total."""

import statistics
import time
from pathlib import Path

import pynvml
import tensorflow as tf

from entrypoint.observe.monitor.sampling import HostUsage

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
a = tf.random.normal([8192, 8192])
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)


def of_nvml():
    pynvml.nvmlDeviceGetUtilizationRates(handle)
    pynvml.nvmlDeviceGetMemoryInfo(handle)
    pynvml.nvmlDeviceGetPowerUsage(handle)


usage = HostUsage(Path("/"))
if not usage.look().get("gpus"):
    raise SystemExit("found no GPU in what the monitor sees of this host; wanted one, by NVML")
for interval, looks in ((1.0, 10), (0.1, 50)):
    costs = {"NVML": [], "all": []}
    for _ in range(looks):
        until = time.monotonic() + interval
        float(tf.matmul(a, a)[0, 0])  # the GPU is at work between two looks
        while (left := until - time.monotonic()) > 0:
            time.sleep(left)
        for name, look in (("NVML", of_nvml), ("all", usage.look)):
            began, cpu = time.perf_counter(), time.thread_time()
            look()
            costs[name].append((time.perf_counter() - began, time.thread_time() - cpu))
    for name, found in costs.items():
        took, cpu = (1e3 * statistics.median(column) for column in zip(*found, strict=True))
        core = cpu / 10 / interval  # per cent, of milliseconds a second
        cost = f"{took:.2f} ms a look, {cpu:.2f} ms of CPU, {core:.2f} % of a core"
        print(f"every {interval:g} s, {name}: {cost}", flush=True)
