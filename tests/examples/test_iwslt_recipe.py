"""The IWSLT'15 recipe: refusals before anything runs, and what its scores are."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from informer_fairseq import errors
from preprocess.files import InputError
from tests.support.corpora import load_script, write_corpus


@pytest.fixture
def recipe(root, tmp_path):
    """Runs a script of the recipe from another folder."""

    def run(*arguments, script="run.sh", **settings):
        environment = {name: value for name, value in os.environ.items() if name != "CORPUS"}
        environment.update({"PYTHON": sys.executable, "WORK": str(tmp_path / "work"), **settings})
        command = ["bash", str(root / "examples/iwslt15_en_vi" / script), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def corpus(write, *, without=""):
    """Writes a corpus of two pairs a set; returns its folder."""
    for name in ("train", "tst2012", "tst2013"):
        for language, text in (("en", "it &apos;s a b\nc d\n"), ("vi", "x y\nz\n")):
            if f"{name}.{language}" != without:
                path = write(f"corpus/{name}.{language}", text)
    return path.parent


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("nope",), {}, "no stage 'nope'; the stages are download prepare train average translate score, or all"),
        ((), {"SIZE": "huge"}, "SIZE is 'huge'; it is base or tiny"),
        ((), {"SETTING": "old"}, "SETTING is 'old'; it is paper or modern"),
        ((), {"THREADS": "two"}, "THREADS is 'two'; it is a whole number, 1 or more"),
        ((), {"CPU": "yes"}, "CPU is 'yes'; it is 1, 0 or auto"),
        ((), {"ARCH": "lstm", "SIZE": "tiny"}, "SIZE=tiny is for transformer and the plugin's architectures"),
        ((), {"CORPUS": "nowhere"}, "no such file: nowhere/train.en; a corpus has train, tst2012, tst2013"),
        (("train",), {}, "run the stage before, or all of them"),
        (
            (),
            {"MERGES": "20"},
            "MERGES is '20', and SETTING=paper has whole words, no BPE: leave it, or take SETTING=modern",
        ),
        ((), {"BPE_DROPOUT": "0.1"}, "BPE_DROPOUT is '0.1', and SETTING=paper has whole words"),
        ((), {"BATCH_SIZE": "all"}, "BATCH_SIZE is 'all'; it is a whole number, 1 or more"),
        ((), {"PYTHON": "no-such-python"}, "no Python at 'no-such-python'"),
    ],
)
def test_refusals_are_one_line(recipe, tmp_path, arguments, settings, message):
    done = recipe(*arguments, **{"CPU": "1", **settings})
    assert done.returncode == 2
    assert done.stderr.startswith("run.sh: error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "work").exists()


def test_a_missing_test_file_stops_all_stages(recipe, write):
    folder = corpus(write, without="tst2013.vi")
    done = recipe(CORPUS=str(folder), CPU="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no such file: {folder}/tst2013.vi" in done.stderr


def test_prepare_by_setting(recipe, write, tmp_path):
    folder = corpus(write)
    (folder / "train.en").write_text("w " * 200 + "\n" + "w " * 199 + "\nit &apos;s a b c d\n")
    (folder / "train.vi").write_text("x\n" + "y " * 200 + "\nx y z\n")
    done = recipe("prepare", CORPUS=str(folder), CPU="1")
    assert done.returncode == 0, done.stderr
    assert "train: 3 pairs read, 2 kept, 0 with an empty side, 1 too long (over 199 source / 200 target" in done.stdout
    prepared = tmp_path / "work/paper/prepared"
    assert '"method": "word"' in (prepared / "segmented/model/segmentation.json").read_text()
    assert (prepared / "data-bin/dict.en.txt").read_text() != (prepared / "data-bin/dict.vi.txt").read_text()


def test_stand_in_brings_text_into_the_form_of_the_corpus(recipe, write, tmp_path):
    folder = corpus(write)
    write("raw.en", "It's R&D now.\u00a0\nno end")
    write("raw.vi", "Nghiên cứu.\nhết")
    done = recipe("out", folder, "raw", folder / "train", script="stand_in.sh")
    assert done.returncode == 0, done.stderr
    made = tmp_path / "out"
    assert (made / "train.en").read_text() == "It &apos;s R &amp; D now .\nno end\nit &apos;s a b\nc d\n"
    assert (made / "train.vi").read_text(encoding="utf-8") == "Nghiên cứu .\nhết\nx y\nz\n"
    assert sorted(path.name for path in made.iterdir()) == sorted(path.name for path in folder.iterdir())
    missing = recipe("out2", folder, "gone", script="stand_in.sh")
    assert missing.returncode == 2
    assert missing.stderr == "stand_in.sh: error: no such file: gone.en (nor with .gz); check the prefix\n"
    assert not (tmp_path / "out2/train.en").exists()


@pytest.fixture
def score(root):
    """The recipe's scoring, which is no package."""
    return load_script(root, "iwslt15_en_vi/score.py")


def log_and_environment(write):
    """What one epoch of fairseq-train leaves."""
    lines = (
        "2026-01-01 | INFO | fairseq_cli.train | num. shared model params: 2,400 (num. trained: 2,400)",
        "2026-01-01 | INFO | train_inner | epoch 001:    100 / 240 loss=9.5, nll_loss=6.9, num_updates=100, lr=0.1",
        "2026-01-01 | INFO | valid | epoch 001 | valid on 'valid' subset | nll_loss 7.0 | ppl 128 | num_updates 100",
    )
    log = write("train.log", "".join(f"{line}\n" for line in lines))
    return log, write("train.environment", "commit 1234567, torch 2, 1 threads\n")


def test_scores_are_labelled_and_signed(score, write, tmp_path, capsys):
    hypotheses = write("hyp", "a b c d\na &apos;b&apos; x\n")
    references = write("ref", "a b y z\na &apos;b&apos; x w v\n")
    log, environment = log_and_environment(write)
    output, summary = tmp_path / "scores.txt", tmp_path / "summary.json"
    options = ["--log", log, "--environment", environment, "--set", "tst2013", hypotheses, references]
    options += ["--system", "tiny", "--seed", 1, "--settings", "LR=1", "--flags", "--arch x"]
    score.main([*map(str, options), "--output", str(output), "--summary", str(summary)])
    report = output.read_text(encoding="utf-8")
    assert capsys.readouterr().out == report
    # 5 of 7 words match; 9 reference words: exp(1 - 9 / 7) = 0.7515; 100 * 5 / 7 * 0.7515 = 53.68.
    assert "tokenised, as in the literature: BLEU-1 = 53.68 (BP = 0.751)" in report
    assert "signature: nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:" in report
    assert "|max_ngram_order:1" in report
    assert "detokenised, against references detokenised by the same tool: BLEU = " in report
    assert "|tok:13a|" in report
    assert "\nparameters: 2,400\nlowest valid perplexity: 128.0\ntst2013: 2 lines\n" in report
    kept = json.loads(summary.read_text(encoding="utf-8"))
    assert list(kept["scores"]) == [f"tst2013 {name}" for name in ("BLEU", "chrF2", "BLEU, tokens", "BLEU-1, tokens")]
    assert kept["scores"]["tst2013 BLEU-1, tokens"]["score"] == pytest.approx(53.68, abs=0.005)
    assert kept["scores"]["tst2013 BLEU-1, tokens"]["signature"].endswith("|max_ngram_order:1")
    assert (kept["parameters"], kept["losses"], kept["best_valid_perplexity"]) == (2400, {"100": 9.5}, 128)


def test_unequal_counts_leave_no_scores(score, write, tmp_path):
    log, environment = log_and_environment(write)
    options = ["--set", "x", write("hyp", "a\n"), write("ref", "a\nb\n"), "--log", log, "--environment", environment]
    options += ["--system", "t", "--seed", 1, "--settings", "", "--flags", ""]
    outputs = [tmp_path / "scores.txt", tmp_path / "summary.json"]
    with pytest.raises(InputError, match="has 1 lines but .* has 2"):
        score.main([*map(str, options), "--output", str(outputs[0]), "--summary", str(outputs[1])])
    assert not any(path.exists() for path in outputs)


def test_half_a_log_is_no_run(score, write, tmp_path):
    log, environment = log_and_environment(write)
    write("train.log", "\n".join(Path(log).read_text().splitlines()[1:]))
    options = ["--set", "x", write("hyp", "a\n"), write("ref", "a\n"), "--log", log, "--environment", environment]
    options += ["--system", "t", "--seed", 1, "--settings", "", "--flags", "", "--output", tmp_path / "scores.txt"]
    with pytest.raises(errors.InputError, match=r"train\.log does not tell the number of parameters: no whole log"):
        score.main([*map(str, options), "--summary", str(tmp_path / "summary.json")])


def test_a_log_without_perplexity_is_no_run(score, write, tmp_path):
    log, environment = log_and_environment(write)
    write("train.log", Path(log).read_text().replace("nll_loss 7.0 | ppl 128", "loss 7.0"))
    options = ["--set", "x", write("hyp", "a\n"), write("ref", "a\n"), "--log", log, "--environment", environment]
    options += ["--system", "t", "--seed", 1, "--settings", "", "--flags", "", "--output", tmp_path / "scores.txt"]
    with pytest.raises(errors.InputError, match="validations without perplexity: train with a cross-entropy criterion"):
        score.main([*map(str, options), "--summary", str(tmp_path / "summary.json")])


def test_a_run_from_text_to_scores(recipe, write, tmp_path):
    """BPE-dropout has its own data and runs; each run leaves scores and a summary."""
    folder = write_corpus(write, ("train", "tst2012", "tst2013"), ("en", "vi"))
    settings = {"SETTING": "modern", "SIZE": "tiny", "MERGES": "20", "EPOCHS": "1", "BEAM": "1", "THREADS": "1"}
    settings.update(CORPUS=str(folder), CPU="1", BPE_DROPOUT="0.1", BPE_DROPOUT_COPIES="2")
    done = recipe(**settings)
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work/modern"
    assert sorted(path.name for path in work.iterdir()) == ["informer_mt_tiny-dropout0.1-seed1", "prepared-dropout0.1"]
    run = work / "informer_mt_tiny-dropout0.1-seed1"
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert (summary["system"], summary["seed"]) == ("informer_mt_tiny-dropout0.1", 1)
    assert "SETTING=modern SIZE=tiny EPOCHS=1 MAX_UPDATE=0 MAX_TOKENS=4096 LR=2e-3" in summary["settings"]
    assert "MERGES=20 BPE_DROPOUT=0.1 BPE_DROPOUT_COPIES=2 FIXED_LENGTH=200 AVERAGE=1 BEAM=1" in summary["settings"]
    assert summary["environment"][0].endswith(" 1 threads")
    assert {name.partition(" ")[0] for name in summary["scores"]} == {"tst2012", "tst2013"}
    assert all(score["signature"] in (run / "scores.txt").read_text() for score in summary["scores"].values())

    # Scored alone, it takes no other setting's name.
    for changed, message in (
        ({"ARCH": "linformer_mt", "RUN": run.name}, "was trained with other settings or data (train.settings there"),
        ({"BATCH_SIZE": "4"}, "was trained with other settings or data"),
        ({"EPOCHS": "2"}, "was trained with EPOCHS=1 MAX_UPDATE=0, not EPOCHS=2 MAX_UPDATE=0; give the settings"),
        (
            {"BPE_DROPOUT_COPIES": "4"},
            "was prepared with MERGES=20 BPE_DROPOUT=0.1 BPE_DROPOUT_COPIES=2 FIXED_LENGTH=200",
        ),
        ({"BEAM": "2"}, "beam 2, or older than the model; run the stage translate"),
    ):
        done = recipe("score", **{**settings, **changed})
        assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1
    assert json.loads((run / "summary.json").read_text(encoding="utf-8")) == summary

    # A longer training of the same run notes what trains it then; a lost summary is made again.
    (run / "train.environment").write_text("commit 1234567, another machine\n")
    (run / "summary.json").unlink()
    done = recipe("score", **settings)
    assert done.returncode == 0 and (run / "summary.json").is_file()
    settings["EPOCHS"] = "2"
    done = recipe("train", **settings)
    assert done.returncode == 0, done.stderr
    first, second = (run / "train.environment").read_text().splitlines()
    assert first == "commit 1234567, another machine" and second == summary["environment"][0]

    # Without its checkpoints it begins anew, and nothing of the first training is left in log or environment.
    shutil.rmtree(run / "checkpoints")
    done = recipe("train", **settings)
    assert done.returncode == 0, done.stderr
    assert (run / "train.environment").read_text().splitlines() == summary["environment"]
    assert (run / "train.log").read_text().count("num. shared model params") == 1
