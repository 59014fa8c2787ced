"""The IWSLT'15 recipe: refusals before anything runs, and what its scores are."""

import os
import subprocess
import sys

import pytest

from preprocess.files import InputError
from tests.support.corpora import load_script


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
        ((), {"CPU": "yes"}, "CPU is 'yes'; it is 1, 0 or auto"),
        ((), {"ARCH": "lstm", "SIZE": "tiny"}, "SIZE=tiny is for transformer and the plugin's architectures"),
        ((), {"CORPUS": "nowhere"}, "no such file: nowhere/train.en; a corpus has train, tst2012, tst2013"),
        (("train",), {}, "run the stage before, or all of them"),
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


def test_scores_are_labelled_and_signed(score, write):
    hypotheses = str(write("hyp", "a b c d\na &apos;b&apos; x\n"))
    references = str(write("ref", "a b y z\na &apos;b&apos; x w v\n"))
    report = "\n".join(score.score_set("tst2013", hypotheses, references, "vi"))
    # 5 of 7 words match; 9 reference words: exp(1 - 9 / 7) = 0.7515; 100 * 5 / 7 * 0.7515 = 53.68.
    assert "tokenised, as in the literature: BLEU-1 = 53.68 (BP = 0.751)" in report
    assert "signature: nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:" in report
    assert "|max_ngram_order:1" in report
    assert "detokenised, against references detokenised by the same tool: BLEU = " in report
    assert "|tok:13a|" in report


def test_unequal_counts_leave_no_scores(score, write, tmp_path):
    sets = ["--set", "x", str(write("hyp", "a\n")), str(write("ref", "a\nb\n"))]
    with pytest.raises(InputError, match="has 1 lines but .* has 2"):
        score.main(["--title", "t", *sets, "--output", str(tmp_path / "scores.txt")])
    assert not (tmp_path / "scores.txt").exists()
