"""The whole way: every step once, again when something changed, the same through the shell recipe."""

import os
import subprocess
import sys

import pytest

from preprocess.files import InputError
from preprocess.prepare import main

ENGLISH = "the low road\nthe wide road is low\na new road\n"
VIETNAMESE = "con đường thấp\ncon đường rộng thì thấp\nmột con đường mới\n"


@pytest.fixture
def corpus(write, tmp_path):
    """A corpus of a few words; returns the options that every run needs."""
    for name, copies in (("train", 4), ("valid", 1), ("test", 1)):
        write(f"corpus/{name}.en", ENGLISH * copies)
        write(f"corpus/{name}.vi", VIETNAMESE * copies)
    options = ["--languages", "en", "vi", "--output", str(tmp_path / "out"), "--workers", "1"]
    for name in ("train", "valid", "test"):
        options += [f"--{name}", str(tmp_path / "corpus" / name)]
    return options


def steps(capsys):
    """What each step did in the runs since the last call."""
    return [line[3:] for line in capsys.readouterr().out.splitlines() if line.startswith("== ")]


def test_steps_alone_and_again(corpus, tmp_path, write, capsys):
    merges = ["--segmentation", "bpe", "--merges", "10"]
    main([*corpus, *merges, "--stage", "clean"])
    main([*corpus, *merges, "--stage", "segment"])
    main([*corpus, *merges, "--stage", "segment"])
    assert steps(capsys) == ["clean: not done yet", "segmented: not done yet", "segmented: finished before"]
    main([*corpus, "--segmentation", "bpe", "--merges", "11", "--stage", "segment"])
    main([*corpus, "--segmentation", "word", "--stage", "segment"])
    assert steps(capsys) == [
        "segmented: changed setting: merges",
        "segmented: changed setting: joint, merges, method, min_frequency, vocabulary_threshold",
    ]
    # A setting of another method changes nothing.
    main([*corpus, "--segmentation", "word", "--merges", "12", "--stage", "segment"])
    # A changed corpus reaches the segmentation only through cleaning.
    write("corpus/test.en", ENGLISH.replace("low", "high"))
    main([*corpus, "--segmentation", "word", "--stage", "clean"])
    main([*corpus, "--segmentation", "word", "--stage", "segment"])
    main([*corpus, "--segmentation", "word", "--stage", "segment", "--force"])
    assert steps(capsys) == [
        "segmented: finished before",
        "clean: changed input: test.en",
        "segmented: changed input: test.en",
        "segmented: forced",
    ]


def test_a_step_before_its_input_is_one_line(corpus, tmp_path):
    with pytest.raises(InputError, match="no such file: .*clean/train.en; run the earlier steps first"):
        main([*corpus, "--stage", "segment"])
    assert not (tmp_path / "out").exists()


def test_a_broken_step_leaves_no_half_folder(corpus, tmp_path):
    with pytest.raises(InputError, match="sentencepiece cannot learn 9000 pieces"):
        main([*corpus, "--segmentation", "sentencepiece", "--vocabulary-size", "9000"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["clean"]


def test_tokenising_goes_between(corpus, tmp_path, write, capsys):
    write("corpus/test.en", "It's low.\nthe road\na road\n")
    for stage in ("clean", "tokenize", "segment"):
        main([*corpus, "--tokenize", "--segmentation", "word", "--stage", stage])
    assert (tmp_path / "out/segmented/test.en").read_text() == "It &apos;s low .\nthe road\na road\n"
    main([*corpus, "--tokenize", "--no-escape", "--segmentation", "word", "--stage", "tokenize"])
    assert (tmp_path / "out/tokenized/test.en").read_text() == "It 's low .\nthe road\na road\n"


def test_long_pairs_leave_the_training_set_alone(corpus, tmp_path, capsys):
    limits = ["--segmentation", "word", "--max-pieces", "4", "9"]
    for stage in ("clean", "segment"):
        main([*corpus, *limits, "--stage", stage])
    out = capsys.readouterr().out
    assert "train: 4 pairs over 4 source / 9 target pieces dropped\n" in out
    assert "test: 1 pairs over 4 source / 9 target pieces kept (a model with fewer positions refuses them)\n" in out
    assert len((tmp_path / "out/segmented/train.vi").read_text(encoding="utf-8").splitlines()) == 8
    assert len((tmp_path / "out/segmented/test.en").read_text().splitlines()) == 3


def test_dropout_copies_and_their_dictionary(corpus, tmp_path):
    dropout = ["--segmentation", "bpe", "--merges", "30", "--bpe-dropout", "0.9", "--bpe-dropout-copies", "3"]
    for stage in ("clean", "segment"):
        main([*corpus, *dropout, "--stage", stage])
    made = tmp_path / "out/segmented"
    lines = (made / "train.en").read_text().splitlines()
    assert len(lines) == 36
    assert lines[:12] != lines[12:24]
    # What the copies may never show whole, the dictionary has: valid and test sets are cut without dropout.
    pieces = set((made / "dictionary.en").read_text().split())
    assert "the" in pieces and set((made / "test.en").read_text().split()) <= pieces
    first = (made / "train.en").read_bytes()
    main([*corpus, *dropout, "--stage", "segment", "--force"])
    assert (made / "train.en").read_bytes() == first
    with pytest.raises(InputError, match="--bpe-dropout is for --segmentation bpe, not word"):
        main([*corpus, "--segmentation", "word", "--bpe-dropout", "0.1"])
    with pytest.raises(InputError, match="--bpe-dropout-copies is 0"):
        main([*corpus, *dropout, "--bpe-dropout-copies", "0"])


def test_shell_recipe(corpus, root, tmp_path):
    prefix = "corpus/{}"  # relative: the recipe works from any folder
    settings = {
        "SRC": "en", "TGT": "vi", "TRAIN": prefix.format("train"), "VALID": prefix.format("valid"),
        "TEST": f"{prefix.format('test')} {prefix.format('valid')}", "OUT": "out", "JOINT": "1", "MERGES": "20",
        "BPE_DROPOUT": "0.5", "BPE_DROPOUT_COPIES": "2", "MAX_WORDS": "4 9", "MAX_UNKNOWN_RATE": "0.3", "WORKERS": "2",
        "PYTHON": sys.executable,
    }  # fmt: skip

    def recipe(**more):
        command = ["bash", str(root / "preprocess/prepare.sh")]
        environment = {**os.environ, **settings, **more}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = recipe()
    assert done.returncode == 0, done.stderr
    assert (
        "train: 12 pairs read, 8 kept, 0 with an empty side, 4 too long (over 4 source / 9 target words)" in done.stdout
    )
    assert "train.en: 16 lines" in done.stdout
    for name in ("train", "valid", "test", "test1"):
        assert (tmp_path / f"out/data-bin/{name}.en-vi.vi.idx").exists()
    assert [line for line in recipe().stdout.splitlines() if line.startswith("== ")] == [
        "== clean: finished before",
        "== segmented: finished before",
        "== data-bin: finished before",
    ]
    missing = recipe(TEST="")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("prepare.sh: error: TEST is not set; ")
    nowhere = recipe(TRAIN="nowhere", FORCE="1")
    assert nowhere.returncode == 2
    assert nowhere.stderr == (
        "prepare.py: error: no such file: nowhere.en (nor nowhere.en.gz); check the prefix and the language\n"
    )


def test_lowercase_is_a_setting_of_the_cleaning(corpus, write, tmp_path, capsys):
    write("corpus/train.vi", VIETNAMESE.replace("con đường", "CON ĐƯỜNG") * 4)
    main([*corpus, "--segmentation", "word", "--stage", "clean"])
    main([*corpus, "--segmentation", "word", "--stage", "clean", "--lowercase"])
    assert steps(capsys) == ["clean: not done yet", "clean: changed setting: lowercase"]
    assert (tmp_path / "out/clean/train.vi").read_text(encoding="utf-8") == VIETNAMESE * 4
