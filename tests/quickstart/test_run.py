"""run.sh end to end, shortened: killed twice, resumed, run again, and used as it says at its end."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import repair_checkpoints
import torch

from tests.quickstart.conftest import QUICKSTART, run_quickstart

TEST_LINES = 30


def test_a_killed_stage_leaves_nothing_that_a_later_run_trusts(story):
    assert "stamps/corpus" in story.after_first_kill and "corpus/corpus.json" in story.after_first_kill
    assert not any(name.startswith(("data-bin/", "stamps/binarize")) for name in story.after_first_kill)
    assert "stamps/train-started" in story.after_second_kill and "stamps/train" not in story.after_second_kill
    assert "translations.txt" not in story.after_second_kill


def test_the_next_run_goes_on_where_the_last_one_was_killed(story):
    assert story.end.returncode == 0, story.end.stderr
    assert "already built" in story.output and "already done" in story.output
    log = (story.work / "train.log").read_text(encoding="utf-8")
    assert "checkpoint_last.pt was cut short by an interruption: removed" in story.output
    assert "Loaded checkpoint" in log
    assert "20/20 updates: training loss" in story.output


def test_results_show_score_signature_and_a_dozen_examples(story):
    assert re.search(r"^Test BLEU \d+\.\d\d; \d+ of 30 translations are exactly the reference$", story.output, re.M)
    assert re.search(r"^sacreBLEU signature: nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|", story.output, re.M)
    for label in ("English", "reference", "translation"):
        assert len(re.findall(rf"^  {label} +\S", story.output, re.M)) == 12
    translations = (story.work / "translations.txt").read_text(encoding="utf-8")
    assert len(re.findall(r"^D-\d+\t", translations, re.M)) == TEST_LINES
    assert story.end.stderr == ""  # no bar, and no noise, where stderr is no terminal


def test_a_second_run_does_nothing_again(story):
    def times():
        return {path: path.stat().st_mtime_ns for path in story.work.rglob("*") if path.is_file()}

    before = times()
    again = run_quickstart(story.work)
    assert again.returncode == 0 and times() == before
    assert again.stdout.count("already") == 4
    assert again.stdout[again.stdout.index("12 of them") :].rsplit("Done in", 1)[0] in story.output


def test_the_printed_command_translates_a_line(story, tmp_path):
    (command,) = re.findall(r"^echo '.*$", story.output, re.M)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1


def test_of_several_checkpoints_the_newest_whole_one_stands_in_for_a_cut_one(tmp_path, capsys):
    for age, name in enumerate(("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint_1_100.pt", "old.pt")):
        torch.save(name, tmp_path / name)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-30])
    repair_checkpoints.main([str(tmp_path)])
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        assert torch.load(tmp_path / name) == "checkpoint_1_100.pt"
    assert capsys.readouterr().out.count("was cut short") == 2
    before = sorted(tmp_path.iterdir())
    repair_checkpoints.main([str(tmp_path)])
    assert sorted(tmp_path.iterdir()) == before and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"PAIRS": "many"}, "PAIRS=many is not a whole number"),
        ({"MAX_UPDATE": "0"}, "MAX_UPDATE=0: give 1 or more"),
        ({"PAIRS": "7"}, "--pairs 7 is out of range: give 500 to 100000"),
        ({"PYTHON": "/no/such/python"}, "PYTHON=/no/such/python is no program; run 'make setup'"),
        ({"WORK": "/proc/nowhere"}, "WORK=/proc/nowhere cannot be written; set WORK to another folder"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path, settings, message):
    end = run_quickstart(tmp_path / "work", **settings)
    assert end.returncode == 2
    assert message in end.stderr and end.stderr.count("\n") == 1


def test_an_unknown_architecture_is_one_line(story, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(story.work, work)
    end = run_quickstart(work, ARCH="informer_of_weather")
    assert end.returncode == 2 and end.stderr.count("\n") == 1
    assert "invalid choice: 'informer_of_weather'" in end.stderr
    assert not (work / "stamps" / "train").exists()


def test_a_program_that_was_killed_is_named(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\n[[ "$*" != *preprocess* ]] || kill -9 $$\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    end = run_quickstart(tmp_path / "work", PYTHON=str(python))
    assert end.returncode == 2
    assert "fairseq-preprocess was ended by signal 9" in end.stderr and "goes on from here" in end.stderr
    assert not (tmp_path / "work" / "data-bin").exists()


# run.sh locks only where the system has flock (util-linux): without it there is no behaviour to test.
@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock on this system")
def test_two_runs_do_not_share_a_folder(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    holder = subprocess.Popen(
        ["flock", str(work / ".lock"), sys.executable, "-c", "print('held', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        holder.stdout.readline()
        end = run_quickstart(work)
    finally:
        holder.communicate(b"\n")
    assert end.returncode == 2 and "another run is at work" in end.stderr


def test_the_script_is_valid_and_says_how_it_is_used():
    script = QUICKSTART / "run.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text and "# usage:" in text
