"""install.sh: what it asks pip for, with a stand-in for the environment's Python."""

import os
import subprocess
import sys

import pytest

STAND_IN = """#!/bin/bash
# pip's arguments go to a log, with the constraints that it would hold to; everything else to the real Python.
if [ "$1" = -m ] && [ "$2" = pip ]; then
    echo "$*" >> {log}
    while [ $# -gt 0 ]; do if [ "$1" = -c ]; then cat "$2" >> {log}; fi; shift; done
    exit 0
fi
case "$*" in *"import informer_fairseq"*) exit 0 ;; esac
exec {python} "$@"
"""


@pytest.mark.parametrize("known_to_pip, calls_itself", [("2.13.0", "2.13.0+cu130"), ("2.13.0+cpu", "2.13.0+cpu")])
def test_the_torch_that_is_there_is_held_by_the_version_that_pip_knows(
    root, write, tmp_path, known_to_pip, calls_itself
):
    """PyPI's CUDA builds have no local version in their metadata: held by what they call themselves, nothing fits."""
    write("packages/torch.py", f'__version__ = "{calls_itself}"\n')
    write(f"packages/torch-{known_to_pip}.dist-info/METADATA", f"Name: torch\nVersion: {known_to_pip}\n")
    log = tmp_path / "log"
    python = write("venv/bin/python", STAND_IN.format(log=log, python=sys.executable))
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", str(root / "install.sh")],
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "VENV": str(tmp_path / "venv"),
            "PYTHONPATH": str(tmp_path / "packages"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    assert lines.count(f"torch=={known_to_pip}") == 2  # for the build tools and for the project
    assert not any(line.endswith(" install torch==2.13.0") for line in lines)  # it is there: none is fetched
    assert lines[-2].endswith("-e .[dev]")
