"""What the tests of the preparation share."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


@pytest.fixture
def run(tmp_path):
    """Runs a tool as a user does, from a folder that is not the repository."""

    def run_tool(name: str, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess:
        command = [sys.executable, str(ROOT / "preprocess" / name), *map(str, arguments)]
        return subprocess.run(command, input=stdin, capture_output=True, cwd=tmp_path, check=False)

    return run_tool
