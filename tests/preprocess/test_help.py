"""Every tool explains itself, run as a file from any folder or as a module."""

import subprocess
import sys

import pytest

TOOLS = ["clean", "tokenize_text", "detokenize_text", "segment", "binarize", "hypotheses", "prepare"]


@pytest.mark.parametrize("tool", TOOLS)
def test_help(run, root, tool):
    as_file = run(f"{tool}.py", "--help")
    assert as_file.returncode == 0
    assert as_file.stdout.startswith(f"usage: {tool}.py".encode())
    assert as_file.stderr == b""
    command = [sys.executable, "-m", f"preprocess.{tool}", "--help"]
    as_module = subprocess.run(command, capture_output=True, cwd=root, check=False)
    assert as_module.stdout.splitlines()[-3:] == as_file.stdout.splitlines()[-3:]


def test_every_tool_is_here(root):
    runnable = [path.stem for path in (root / "preprocess").glob("*.py") if "run_tool(main)" in path.read_text()]
    assert sorted(runnable) == sorted(TOOLS)


def test_no_tool_shadows_the_standard_library(root):
    # Run as a file, a tool has its own folder first on the path.
    assert not {path.stem for path in (root / "preprocess").glob("*.py")} & set(sys.stdlib_module_names)


@pytest.mark.parametrize("script", ["preprocess/prepare.sh", "examples/iwslt15_en_vi/run.sh"])
def test_shell_help(root, tmp_path, script):
    command = ["bash", str(root / script), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert "usage: " in done.stdout and "set -euo" not in done.stdout
