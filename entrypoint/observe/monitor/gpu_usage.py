"""Measure how busy GPUs are, and the memory and power that they use, with NVML."""

import contextlib
from pathlib import Path
from typing import Any


class Gpus:
    """Look at this host's GPUs. NVML's binding is imported only where device files show an NVIDIA GPU."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        if any(Path("/dev").glob("nvidia[0-9]*")):
            with contextlib.suppress(Exception):
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
                self._handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]

    def look(self) -> list[list[float]]:
        """Return [busy 0-1, bytes used, bytes in all, watts, memory's activity 0-1] of each GPU."""
        found = []
        for handle in self._handles:
            with contextlib.suppress(Exception):  # NVML has exceptions of its own; a lost GPU has no figures
                rates = self._nvml.nvmlDeviceGetUtilizationRates(handle)
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                watts = self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000
                found.append([rates.gpu / 100, memory.used, memory.total, round(watts, 1), rates.memory / 100])
        return found
