"""Dictionaries and binarized text that are missing, damaged or of another vocabulary are told in one line."""

import re
import shutil

import numpy as np
import pytest
from fairseq_cli import generate, train

from tests.support import outcomes
from tests.support.checkpoints import SIZES
from tests.support.damage import cut, training
from tests.support.outcomes import USER_DIR, checkpoint_readers, told_by_fairseq


@pytest.fixture
def other_bin(data_bin, tmp_path):
    shutil.copytree(data_bin[0], tmp_path / "other-bin")
    return tmp_path / "other-bin"


LOADERS = ("resume", "generate", "interactive", "validate", "from_pretrained", "score", "probe", "report")


@pytest.mark.parametrize("reader", LOADERS)
def test_a_missing_dictionary_is_told(reader, model, other_bin, tmp_path, capsys):
    (other_bin / "dict.vi.txt").unlink()
    line = checkpoint_readers(model, other_bin, tmp_path / "out", capsys, sizes=SIZES)[reader]()
    assert re.search(r"no such file: \S+other-bin/dict.vi.txt; ", line), line


def assert_other_words_are_told(arch, folder, side, change, reader, other_bin, tmp_path, capsys):
    path = other_bin / f"dict.{side}.txt"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    checkpoint = folder / "checkpoint2.pt"
    line = checkpoint_readers(checkpoint, other_bin, tmp_path / "out", capsys, arch, SIZES)[reader]()
    if change is reverse:
        which = "source" if side == "en" else "target"
        assert f"the checkpoint's {which} dictionary has other words, or another order, than the data's" in line
    else:
        assert re.search(r"\b64 types.*\b66\b", line), line


def longer(words):
    return [*words, "one 1", "two 1"]


def reverse(words):
    return words[::-1]


@pytest.mark.parametrize("reader", LOADERS)
@pytest.mark.parametrize(("side", "change"), [("en", longer), ("vi", reverse)])
def test_a_data_bin_of_another_vocabulary_is_told(side, change, reader, informer, other_bin, tmp_path, capsys):
    """fairseq, alone, shows a page of shapes, or translates into nonsense where the sizes are equal."""
    assert_other_words_are_told(*informer, side, change, reader, other_bin, tmp_path, capsys)


@pytest.mark.parametrize("reader", ["resume", "generate"])
@pytest.mark.parametrize(("side", "change"), [("vi", longer), ("en", reverse)])
def test_it_is_for_every_architecture(side, change, reader, whole, other_bin, tmp_path, capsys):
    if whole[0] == "transformer" and change is reverse:
        change = longer  # the stock model's checkpoints do not know their words: see the next test
    assert_other_words_are_told(*whole, side, change, reader, other_bin, tmp_path, capsys)


def test_stock_checkpoints_do_not_know_their_words(model, other_bin):
    """What stock fairseq does with other words in a dictionary of equal size: it translates, into nonsense."""
    path = other_bin / "dict.en.txt"
    path.write_text("\n".join(path.read_text().splitlines()[::-1]) + "\n")
    words = [other_bin, "--path", model, "--cpu", "--num-workers", "0", "--user-dir", USER_DIR, "--beam", "1"]
    assert outcomes.run_fairseq(generate, [*words, "--max-len-b", "2"]) is not None


def edit(path, change):
    path.write_bytes(change(path.read_bytes()))


HEAD = 26  # bytes before the lengths in an index
DATA_DAMAGES = {
    "index cut": ("idx", cut, "idx is damaged: it has \\d+ bytes, its 13 sentences take \\d+; copy it again"),
    "index empty": ("idx", lambda content: b"", "idx is damaged or no index of binarized text"),
    "index of another kind": ("idx", lambda content: b"GARBAGE" * 9, "idx is damaged or no index of binarized text"),
    "index's version": (
        "idx",
        lambda content: content[:9] + b"\7" + content[10:],
        "idx is damaged: version 7 and type",
    ),
    "index's type": ("idx", lambda content: content[:17] + b"\77" + content[18:], "and type 63 do not exist"),
    "index's lengths": (
        "idx",
        lambda content: content[:HEAD] + np.int32(99).tobytes() + content[HEAD + 4 :],
        "idx is damaged: its sentences do not follow one another",
    ),
    "text cut": ("bin", cut, "bin is damaged or cut: it has \\d+ bytes, its index says \\d+; copy it again"),
    "text longer": ("bin", lambda content: content * 2, "bin is damaged or cut"),
    "text empty": ("bin", lambda content: b"", "bin is damaged or cut: it has 0 bytes"),
}


@pytest.mark.parametrize(
    ("arch", "damage"), [("transformer", "text cut"), *(("informer_mt_tiny", damage) for damage in DATA_DAMAGES)]
)
def test_damaged_binarized_text_is_told_before_training(arch, damage, other_bin, tmp_path):
    kind, change, message = DATA_DAMAGES[damage]
    edit(other_bin / f"valid.en-vi.vi.{kind}", change)
    line = told_by_fairseq(train, training((other_bin,), tmp_path / "out", arch, "--max-update", "1"))
    assert re.search(message, line), line
    assert not list((tmp_path / "out").glob("*.pt"))


DICTIONARY_DAMAGES = {
    "cut in a line": (lambda content: content[:-2].rpartition(b" ")[0], "Incorrect dictionary format"),
    "no text": (lambda content: bytes(range(128, 256)) * 9, "Incorrect encoding detected in .*: use the dict.LANG.txt"),
    "a word twice": (lambda content: content + content.splitlines(True)[0], "Duplicate word found when loading"),
    "counts gone": (lambda content: re.sub(rb" \d+", b"", content), "Incorrect dictionary format"),
}


@pytest.mark.parametrize("damage", DICTIONARY_DAMAGES)
@pytest.mark.parametrize("command", [train, generate], ids=lambda command: command.__name__)
def test_a_damaged_dictionary_is_told(command, damage, model, other_bin, tmp_path):
    change, message = DICTIONARY_DAMAGES[damage]
    edit(other_bin / "dict.vi.txt", change)
    words = [other_bin, "--user-dir", USER_DIR, "--path", model, "--cpu", "--num-workers", "0"]
    if command is train:
        words = training((other_bin,), tmp_path / "out", "informer_mt_tiny", "--max-update", "1")
    assert re.match(message, told_by_fairseq(command, words))


def test_sides_of_different_sets_are_told(other_bin, tmp_path):
    for kind in ("idx", "bin"):
        shutil.copyfile(other_bin / f"test.en-vi.vi.{kind}", other_bin / f"valid.en-vi.vi.{kind}")
    line = told_by_fairseq(train, training((other_bin,), tmp_path / "out", "informer_mt_tiny", "--max-update", "1"))
    assert line == (
        "Source and target must contain the same number of examples: binarize both sides again, from the same lines"
    )
