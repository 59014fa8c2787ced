"""Makes the quickstart's own modules importable and runs its shortened version once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart"
sys.path.insert(0, str(QUICKSTART))

# A few short epochs: long enough to be killed between the first checkpoint and the last.
SETTINGS = {"PAIRS": "600", "MAX_UPDATE": "20", "THREADS": "1"}
PATIENCE = 120.0


def quickstart_environment(work: Path, **settings: str) -> Dict[str, str]:
    """The environment of a shortened run in ``work``."""
    return {**os.environ, "PYTHON": sys.executable, "WORK": str(work), **SETTINGS, **settings}


def run_quickstart(work: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Runs the shortened quickstart to its end, from a folder that is not the repository's."""
    return subprocess.run(
        [str(QUICKSTART / "run.sh")],
        env=quickstart_environment(work, **settings),
        cwd=work.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )


def kill_quickstart_at(sign: Path, work: Path) -> None:
    """Starts the shortened quickstart and kills it, with all that it started, as soon as ``sign`` exists."""
    with open(work.parent / "killed.log", "a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(QUICKSTART / "run.sh")],
            env=quickstart_environment(work),
            cwd=work.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        deadline = time.monotonic() + PATIENCE
        try:
            while not sign.exists():
                assert process.poll() is None and time.monotonic() < deadline, f"ended before {sign.name} appeared"
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def contents(folder: Path) -> List[str]:
    """The names of all files below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class Story:
    """What a quickstart left behind that was killed in preprocessing, then in training, and then ran to its end.

    The last checkpoint is cut in half before the end, as a kill while fairseq copies it would do.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        kill_quickstart_at(work / "data-bin.partial", work)
        self.after_first_kill = contents(work)
        kill_quickstart_at(work / "checkpoints" / "checkpoint_last.pt", work)
        self.after_second_kill = contents(work)
        last = work / "checkpoints" / "checkpoint_last.pt"
        last.write_bytes(last.read_bytes()[:100_000])
        self.end = run_quickstart(work)
        self.output = self.end.stdout


@pytest.fixture(scope="session")
def story(tmp_path_factory):
    return Story(tmp_path_factory.mktemp("quickstart") / "a folder")
