"""The probe: files, states, cache, classifier, table; a planted feature is found and a random label is not."""

import gzip
import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from informer_fairseq.errors import InputError
from informer_fairseq.tools import main, probe_data, probe_make, probe_states, probe_text
from informer_fairseq.tools.models import load_model
from informer_fairseq.tools.probe_classifier import fit_probe, majority_accuracy
from tests.support.checkpoints import save_small
from tests.support.models import ALL_ARCHS


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    """A stock model's checkpoint and its data-bin."""
    path = tmp_path_factory.mktemp("run") / "averaged.pt"
    save_small(path, data_bin[0])
    return path, data_bin[0]


def sentences(count, seed=1):
    generator = random.Random(seed)
    return [" ".join(f"w{generator.randrange(60)}" for _ in range(generator.randint(3, 12))) for _ in range(count)]


def run_cli(*words, status=0):
    assert main.main([str(word) for word in words]) == status


# ------------------------------------------------------------------------------------------------------------- files


def test_official_file_is_read_by_split(write):
    path = write("obj_number.txt", "tr\tNN\tone cat .\nva\tNNS\ttwo cats .\nte\tNN\textra\ta dog .\n")
    assert probe_data.read_examples(path) == {
        "tr": [("one cat .", "NN")],
        "va": [("two cats .", "NNS")],
        "te": [("a dog .", "NN")],
    }


@pytest.mark.parametrize(
    "text, line, expected",
    [
        ("tr\tA\tone\nxx\tB\ttwo\n", 2, "tr, va or te TAB label TAB sentence"),
        ("a sentence\tA\nanother one\n", 2, "sentence TAB label"),
        ("a sentence without label\n", 1, "sentence TAB label"),
        ("a\tb\tc\n", 1, "sentence TAB label"),
        ("a sentence\t\n", 1, "sentence TAB label"),
    ],
)
def test_unknown_format_names_line_and_expectation(write, text, line, expected):
    path = write("past_present.txt", text)
    with pytest.raises(InputError, match=f"line {line}, is not {expected}"):
        probe_data.read_examples(path)


def test_test_and_validation_files_train_on_validation(tmp_path):
    folder = tmp_path / "subj_number"
    folder.mkdir()
    lines = [f"sentence {number}\t{'AB'[number % 2]}" for number in range(400)]
    (folder / "va.txt.gz").write_bytes(gzip.compress("\n".join(lines[:300]).encode()))
    (folder / "te.txt").write_text("\n".join(lines[300:]))
    files = probe_data.find_tasks(tmp_path)
    task = probe_data.read_task("subj_number", files["subj_number"])
    assert len(task.train) + len(task.valid) == 300 and 15 <= len(task.valid) <= 45
    assert task.test == [tuple(line.split("\t")) for line in lines[300:]]
    assert "no tr" in task.note


def test_one_file_is_divided_without_overlap(tmp_path):
    folder = tmp_path / "tree_depth"
    folder.mkdir()
    lines = [f"sentence {number % 900}\t{number % 900 % 3}" for number in range(1000)]  # a hundred come twice
    for split in ("va", "te"):
        (folder / f"{split}.txt").write_text("\n".join(lines))
    task = probe_data.read_task("tree_depth", probe_data.find_tasks(tmp_path)["tree_depth"])
    parts = [{sentence for sentence, _ in part} for part in (task.train, task.valid, task.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 900
    assert len(task.train) + len(task.valid) + len(task.test) == 1000
    assert 150 <= len(task.test) <= 250 and 60 <= len(task.valid) <= 140
    assert "va and te are one" in task.note


def test_missing_tasks_are_named(tmp_path, write):
    with pytest.raises(InputError, match="no such folder"):
        probe_data.find_tasks(tmp_path / "nothing")
    with pytest.raises(InputError, match="has no probing task"):
        probe_data.find_tasks(tmp_path)
    write("word_content.txt", "a\tb\n")
    with pytest.raises(InputError, match="has no tree_depth: expected tree_depth.txt"):
        probe_data.find_tasks(tmp_path, ["tree_depth"])


# -------------------------------------------------------------------------------------------------------------- text


def test_segmentation_folder_and_its_errors(write, tmp_path):
    write("model/codes", "#version: 0.2\na b\nab c</w>\n")
    write("model/segmentation.json", json.dumps({"method": "bpe", "files": {"en": "codes"}}))
    pipeline = probe_text.build_pipeline(language="en", model_folder=str(tmp_path / "model"), tokenize="moses")
    assert pipeline.pieces("abc's  abd") == ["abc", "&@@", "a@@", "p@@", "o@@", "s@@", ";@@", "s", "ab@@", "d"]
    plain = probe_text.build_pipeline(language="en", bpe_codes=str(tmp_path / "model" / "codes"))
    assert plain.pieces("abc") == ["abc"] and plain.key != pipeline.key
    with pytest.raises(InputError, match="learned for en, not for 'de'"):
        probe_text.build_pipeline(language="de", model_folder=str(tmp_path / "model"))
    with pytest.raises(InputError, match="segmentation.json is missing"):
        probe_text.build_pipeline(language="en", model_folder=str(tmp_path))
    with pytest.raises(InputError, match="no such file: .*nothing"):
        probe_text.build_pipeline(language="en", bpe_codes=str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="no sentencepiece model"):
        probe_text.build_pipeline(language="en", sentencepiece_model=str(tmp_path / "model" / "codes"))


def test_missing_bpe_codes_are_one_line(tmp_path, write, capsys):
    write("bin/dict.en.txt", "wor@@ 5\nd 4\nwo@@ 3\n")
    write("bin/dict.vi.txt", "v1 5\nv2 4\n")
    save_small(tmp_path / "model.pt", tmp_path / "bin")
    write("data/past_present.txt", "".join(f"word {n}\t{'AB'[n % 2]}\n" for n in range(200)))
    run_cli("probe", "--data", tmp_path / "data", "--checkpoint", tmp_path / "model.pt", "--no-cache", status=2)
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "is made of bpe pieces (2 of 3 bear its mark), the text would be cut by word" in error
    assert "--bpe-codes FILE" in error


# ------------------------------------------------------------------------------------------------------------ states


@pytest.mark.parametrize("arch", ("transformer", *ALL_ARCHS))
def test_states_are_the_mean_over_the_sentence_alone(arch, data_bin, tmp_path):
    path = tmp_path / "model.pt"
    model = save_small(path, data_bin[0], arch)
    trained = load_model(path, data_bin[0])
    tokens = [probe_text.encode_pieces(line.split(), trained.source) for line in sentences(9)]
    found = probe_states.encode_sentences(trained, tokens, max_tokens=50)
    for row, sentence in zip(found, tokens):
        with torch.no_grad():
            states = model.encoder(sentence.unsqueeze(0), torch.tensor([len(sentence)]))["encoder_out"][0]
        expected = states[:-1, 0].mean(dim=0)  # without </s>
        np.testing.assert_allclose(row, expected.numpy(), atol=2e-6)


def test_batches_keep_every_sentence_and_the_limit():
    lengths = [3, 9, 1, 4, 12, 4, 2]
    batches = probe_states.batches_by_length(lengths, 10)
    assert sorted(index for batch in batches for index in batch) == list(range(7))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 10 for batch in batches)


def store(checkpoint, cache, **options):
    path, folder = checkpoint
    trained = load_model(path, folder, options.get("untrained_seed"))
    pipeline = probe_text.build_pipeline(language="en")
    return probe_states.StateStore(trained=trained, pipeline=pipeline, checkpoint=path, cache=cache, **options)


def test_cache_is_used_and_keyed_by_content(checkpoint, tmp_path, monkeypatch):
    lines = sentences(20)
    first = store(checkpoint, tmp_path).states([*lines, lines[0]])
    assert len(list(tmp_path.glob("*.npz"))) == 1 and np.array_equal(first[0], first[-1])
    other = store(checkpoint, tmp_path, untrained_seed=2).states(lines)
    assert len(list(tmp_path.glob("*.npz"))) == 2 and not np.allclose(first[:-1], other)
    again = store(checkpoint, tmp_path)
    monkeypatch.setattr(again, "_compute", None)  # may not be called
    assert np.array_equal(again.states(lines), first[:-1])
    assert again.pieces == sum(len(line.split()) for line in set(lines)) and again.unknown == 0


def test_damaged_cache_is_made_again(checkpoint, tmp_path):
    lines = sentences(5)
    first = store(checkpoint, tmp_path).states(lines)
    next(tmp_path.glob("*.npz")).write_bytes(b"PK\x03\x04 broken")
    assert np.array_equal(store(checkpoint, tmp_path).states(lines), first)


def test_long_sentences_are_refused_or_counted(data_bin, tmp_path):
    path = tmp_path / "model.pt"
    save_small(path, data_bin[0], "informer_mt")  # takes 40
    lines = ["w1 " * 39, "w1 " * 40]
    with pytest.raises(InputError, match="41 pieces with </s>, the encoder of .* takes 40: .*--skip-long"):
        store((path, data_bin[0]), None).states(lines)
    rows = store((path, data_bin[0]), None, skip_long=True).states(lines)
    assert np.isnan(rows).any(axis=1).tolist() == [False, True]


# -------------------------------------------------------------------------------------------------------- classifier


def test_planted_feature_is_found_and_random_label_is_not():
    generator = np.random.RandomState(3)
    vectors = generator.randn(6000, 8).astype(np.float32)
    planted = np.where(vectors[:, 3] * vectors[:, 5] > 0, "plus", "minus")  # no line divides these
    chance = generator.choice(["a", "b"], 6000)
    cuts = [4000, 5000]
    found = fit_probe(np.split(vectors, cuts), np.split(planted, cuts))
    assert found.accuracy > 0.95
    found = fit_probe(np.split(vectors, cuts), np.split(chance, cuts))
    assert abs(found.accuracy - 0.5) < 0.08 and found.epochs < 100


def test_same_seed_same_probe():
    generator = np.random.RandomState(3)
    vectors, labels = generator.randn(300, 4).astype(np.float32), generator.choice(["a", "b", "c"], 300)
    parts = (np.split(vectors, [200, 250]), np.split(labels, [200, 250]))
    assert fit_probe(*parts, seed=5) == fit_probe(*parts, seed=5)
    assert majority_accuracy(["b", "a", "b"], ["b", "a", "a", "a"]) == 0.25


def test_whole_probe_from_text_to_table(checkpoint, tmp_path, capsys):
    generator = random.Random(5)
    folder = tmp_path / "data"
    folder.mkdir()
    lines = list(dict.fromkeys(sentences(1500, 7)))
    planted, chance = [], []
    for number, line in enumerate(lines):
        split = ("tr", "va", "te")[(number % 5 > 2) + (number % 5 > 3)]
        word = generator.choice(["w58", "w59"])
        line = " ".join(w if w not in ("w58", "w59") else "w0" for w in line.split())
        planted.append(f"{split}\t{word}\t{line} {word} {word}")
        chance.append(f"{split}\t{generator.choice('AB')}\t{line}")
    (folder / "word_content.txt").write_text("\n".join(planted))
    (folder / "past_present.txt").write_text("\n".join(chance))
    path, data = checkpoint
    words = ["probe", "--data", folder, "--checkpoint", f"mine={path}", "--data-bin", data, "--untrained"]
    run_cli(*words, "--cache", tmp_path / "cache", "--json", tmp_path / "out.json")
    result = json.loads((tmp_path / "out.json").read_text())
    mine = result["checkpoints"]["mine"]
    assert mine["tasks"]["word_content"]["accuracy"] > 0.95
    assert abs(mine["tasks"]["past_present"]["accuracy"] - 0.5) < 0.12
    assert mine["averages"]["surface"] == mine["tasks"]["word_content"]["accuracy"]
    expected = (mine["tasks"]["word_content"]["accuracy"] + mine["tasks"]["past_present"]["accuracy"]) / 2
    assert mine["averages"]["all"] == pytest.approx(expected)
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["task", "mine", "untrained", "majority", "test"]
    assert out[1].split()[:3] == ["word_content", "WC", f"{100 * mine['tasks']['word_content']['accuracy']:.2f}"]
    assert result["tasks"]["word_content"]["test"] == sum(line.startswith("te") for line in planted)


def test_errors_leave_nothing(checkpoint, tmp_path, write, capsys):
    path, data = checkpoint
    write("data/past_present.txt", "one\tA\ntwo\n")
    words = ["probe", "--data", tmp_path / "data", "--json", tmp_path / "out.json", "--cache", tmp_path / "cache"]
    run_cli(*words, "--checkpoint", path, "--data-bin", data, status=2)
    run_cli(*words, status=2)
    write("data/past_present.txt", "".join(f"w1 {n}\t{'AB'[n % 2]}\n" for n in range(200)))
    run_cli(*words, "--checkpoint", tmp_path / "none.pt", status=2)
    run_cli(*words, "--checkpoint", path, "--data-bin", tmp_path, status=2)
    run_cli(*words, "--checkpoint", path, path, "--data-bin", data, status=2)
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert ["line 2, is not sentence TAB label" in errors[0], "probe needs --checkpoint" in errors[1]] == [True, True]
    assert "no such checkpoint" in errors[2] and "--data-bin" in errors[3] and "comes twice" in errors[4]
    assert not (tmp_path / "out.json").exists() and not (tmp_path / "cache").exists()


# --------------------------------------------------------------------------------------------------------------- make


@pytest.fixture
def raw_text(write):
    generator = random.Random(9)
    words = [f"{a}{b}word" for a in "abcdefghij" for b in "abcdefghij"]
    lines = []
    for _ in range(3000):
        length = generator.randint(3, 32)
        lines.append(" ".join(generator.choices(words, [1 / (n + 1) for n in range(100)], k=length)) + " .")
    return write("raw.txt", "\n".join(lines) + "\n")


def made(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_made_sentence_length_is_balanced_and_right(raw_text, tmp_path):
    run_cli("probe", "--make", "sentence_length", "--text", raw_text, "--output", tmp_path / "out")
    rows = made(tmp_path / "out" / "sentence_length.txt")
    for _, label, sentence in rows:
        low, high = probe_make.LENGTH_BINS[int(label)]
        assert low <= len(sentence.split()) <= high
    for split in ("tr", "va", "te"):
        labels = [label for own, label, _ in rows if own == split]
        assert {labels.count(label) for label in "012345"} == {len(labels) // 6}
    assert probe_make.length_label(4) is None and probe_make.length_label(29) is None


def test_made_word_content_holds_one_target_once(raw_text, tmp_path):
    options = ["--text", raw_text, "--output", tmp_path / "out", "--words", 20, "--first-rank", 31]
    run_cli("probe", "--make", "word_content", *options)
    rows = made(tmp_path / "out" / "word_content.txt")
    targets = {label for _, label, _ in rows}
    assert len(targets) == 20
    for _, label, sentence in rows:
        assert [word for word in sentence.split() if word in targets] == [label]


def test_made_bigram_shift_swaps_two_neighbours_in_half(raw_text, tmp_path):
    run_cli("probe", "--make", "bigram_shift", "--text", raw_text, "--output", tmp_path / "out", "--size", 500)
    originals = set(raw_text.read_text().splitlines())
    rows = made(tmp_path / "out" / "bigram_shift.txt")
    assert len(rows) <= 500 and sum(label == "I" for _, label, _ in rows) * 2 == len(rows)
    for _, label, sentence in rows:
        words = sentence.split(" ")
        undone = {
            " ".join([*words[:i], words[i + 1], words[i], *words[i + 2 :]]) for i in range(len(words) - 1)
        } & originals
        assert (sentence in originals and label == "O") or (sentence not in originals and label == "I" and undone)
    assert {words.split(" ")[-1] for _, _, words in rows} == {"."}


def test_text_too_small_is_told(write, tmp_path, capsys):
    path = write("raw.txt", "a b c d e f .\n" * 50)
    run_cli("probe", "--make", "sentence_length", "--text", path, "--output", tmp_path / "out", status=2)
    run_cli("probe", "--make", "word_content", "--text", path, "--output", tmp_path / "out", status=2)
    errors = capsys.readouterr().err.splitlines()
    assert "gives 0 examples of the label '1', 10 are needed" in errors[0] and "--first-rank" in errors[1]
    assert not (tmp_path / "out").exists()


def test_no_progress_bar_off_a_terminal(raw_text, tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "informer_fairseq", "probe", "--make", "sentence_length"]
    done = subprocess.run([*command, "--text", raw_text, "--output", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0 and "it/s" not in done.stderr and "\r" not in done.stderr
    assert done.stdout.startswith(f"{tmp_path}/sentence_length.txt: ")
