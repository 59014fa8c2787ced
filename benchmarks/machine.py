"""One line of versions and hardware, to stand beside every figure."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Optional

import torch


def environment(device: torch.device, threads: int) -> str:
    """One line: versions and hardware."""
    fairseq = [f"{name} {_version(name)}" for name in ("ve-fairseq", "fairseq-fixed", "fairseq") if _version(name)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, {', '.join(fairseq)}, {name}, "
        f"{os.cpu_count()} cores, {threads} threads"
    )


def _version(name: str) -> Optional[str]:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """The CPU's name as Linux tells it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    print(environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"), torch.get_num_threads()))
