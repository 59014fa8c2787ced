"""Fixtures shared by all tests: small dictionaries, models of every architecture, a small data-bin."""

import random
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.logs import logging_as_before  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    random.seed(1)


@pytest.fixture(autouse=True)
def logging_kept():
    """What a test runs in this process changes nothing that a later test logs."""
    with logging_as_before():
        yield


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def write(tmp_path):
    """Writes text, byte for byte, to a file under the test's folder and returns its path."""

    def write_text(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
        return path

    return write_text


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory):
    """A binarized copy task, 60 words, sentences of 1 to 30 words: (data-bin folder, folder of the raw text)."""
    from fairseq_cli import preprocess

    folder = tmp_path_factory.mktemp("data")
    generator = random.Random(7)
    for split, size in (("train", 200), ("valid", 13), ("test", 23)):
        lines = [[generator.randrange(60) for _ in range(generator.randint(1, 30))] for _ in range(size)]
        for language, letter in (("en", "w"), ("vi", "v")):
            text = "".join(" ".join(f"{letter}{word}" for word in line) + "\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    parser = __import__("fairseq.options", fromlist=["options"]).get_preprocessing_parser()
    prefixes = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
    preprocess.main(parser.parse_args(["-s", "en", "-t", "vi", *prefixes, f"--destdir={folder / 'bin'}"]))
    return folder / "bin", folder
