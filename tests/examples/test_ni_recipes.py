"""The recipes of the NI paper: refusals, flag sets, the download, and one run from text to scores."""

import re
import tarfile

import pytest
from fairseq import options

import informer_fairseq  # noqa: F401  (registers the architectures)
from tests.support.corpora import load_script, run_recipe, write_corpus

PAIRS = {
    "row1": ("top", "linear"),
    "row2": ("linear", "linear"),
    "row3": ("hierarchical", "linear"),
    "row4": ("top", "hierarchical"),
    "row5": ("hierarchical", "hierarchical"),
    "row6": ("bilinear", "linear"),
    "row7": ("top", "bilinear"),
    "row8": ("bilinear", "bilinear"),
    "layers_second_order": ("bilinear", "linear"),
    "heads_second_order": ("top", "bilinear"),
    **{f"heads_rank{rank}": ("top", "bilinear") for rank in (32, 64, 128, 256, 512)},
    "heads_rank32_kept": ("top", "bilinear"),
}


@pytest.fixture
def recipe(root, tmp_path):
    """Runs a recipe from another folder."""
    return lambda folder, *arguments, **settings: run_recipe(root, folder, tmp_path, *arguments, **settings)


@pytest.mark.parametrize("system", PAIRS)
def test_flag_sets_are_what_their_names_say(root, system):
    flags = (root / "examples/neuron_interaction/flags" / f"{system}.txt").read_text().split()
    args = options.parse_args_and_arch(options.get_training_parser(), ["data", "--arch", "ni_transformer", *flags])
    layers, heads = PAIRS[system]
    assert args.encoder_layer_composition == args.decoder_layer_composition == layers
    assert args.head_composition == heads
    assert args.composition_second_order_only is ("second_order" in system)
    rank = re.search(r"rank(\d+)", system)
    assert args.composition_rank == (int(rank[1]) if rank else 512 if "bilinear" in (layers, heads) else None)
    assert args.head_composition_keep_output_projection is system.endswith("kept")


def test_there_is_no_other_flag_set(root):
    assert {file.stem for file in (root / "examples/neuron_interaction/flags").iterdir()} == set(PAIRS)


def test_the_parameter_table(root, capsys):
    """Hand counts at base size; 61,408,384 less row 1 is the paper's 0.9M."""
    module = load_script(root, "neuron_interaction/parameters.py")
    module.main(["--systems", "row1", "row2", "heads_rank32", "heads_rank32_kept"])
    rows = capsys.readouterr().out.splitlines()[2:]
    side = 4 * (512 * 512 + 512) + 2 * 512 * 2048 + 2048 + 512 + 2 * 1024  # an encoder layer
    stock = 32000 * 512 + 6 * (side + side + 4 * (512 * 512 + 512) + 1024)
    assert rows == [
        f"| row1 | {stock:,} | +0 | +0 | +0 |",
        f"| row2 | {stock + 12 * 512 * 512:,} | +0 | +3,145,728 | +3,145,728 |",
        f"| heads_rank32 | {stock - 3_841_920:,} | -3,841,920 | +0 | -3,841,920 |",
        f"| heads_rank32_kept | {stock + 885_888:,} | +885,888 | +0 | +885,888 |",
    ]


@pytest.mark.parametrize("folder", ["neuron_interaction", "wmt14_en_de", "wmt14_en_fr"])
@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("nope",), {}, "no stage 'nope'; the stages are download prepare train average translate score compare"),
        ((), {"SIZE": "huge"}, "SIZE is 'huge'; it is base, big or tiny"),
        ((), {"SYSTEM": "row9"}, "SYSTEM is 'row9'; it is baseline, or one of heads_rank128 "),
        ((), {"CPU": "yes"}, "CPU is 'yes'; it is 1, 0 or auto"),
        ((), {"CORPUS": "nowhere"}, "no such file: nowhere/train.en; a corpus has train, "),
        (("train",), {}, "run the stage before, or all of them"),
        (("compare",), {}, "run the stage before, or all of them"),
        ((), {"PYTHON": "no-such-python"}, "no Python at 'no-such-python'"),
    ],
)
def test_refusals_are_one_line(recipe, tmp_path, folder, arguments, settings, message):
    done = recipe(folder, *arguments, **settings)
    assert done.returncode == 2
    assert done.stderr.startswith("run.sh: error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "work").exists()


def test_help_is_the_comment_at_the_top(recipe):
    for folder, first in (("neuron_interaction", "Neuron interaction"), ("wmt14_en_fr", "WMT14 English-French")):
        done = recipe(folder, "--help")
        assert done.returncode == 0 and done.stdout.startswith(first) and "set -" not in done.stdout


def test_the_download_joins_the_pieces_and_checks_them(recipe, write, tmp_path):
    """From a site of our own; the sets that sacrebleu would fetch are there already."""
    for language in ("en", "de"):
        write(f"files/training/europarl-v7.de-en.{language}", f"{language} one\n{language} two\n")
        write(f"files/commoncrawl.de-en.{language}", f"{language} three\n")
        write(f"files/training/news-commentary-v9.de-en.{language}", f"{language} four\n")
        for name in ("newstest2013", "newstest2014"):
            write(f"work/corpus/{name}.{language}", "a\n")
    archives = {
        "wmt13/training-parallel-europarl-v7.tgz": "training/europarl-v7.de-en",
        "wmt13/training-parallel-commoncrawl.tgz": "commoncrawl.de-en",
        "wmt14/training-parallel-nc-v9.tgz": "training/news-commentary-v9.de-en",
    }
    for name, member in archives.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(tmp_path / "site" / name, "w:gz") as archive:
            for language in ("en", "de"):
                archive.add(tmp_path / "files" / f"{member}.{language}", arcname=f"{member}.{language}")
    site = f"file://{tmp_path}/site"
    done = recipe("wmt14_en_de", "download", WMT_SITE=site)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work/corpus/train.de").read_text() == "de one\nde two\nde three\nde four\n"
    assert (tmp_path / "work/corpus/train.en").read_text() == "en one\nen two\nen three\nen four\n"
    assert "train: 4 pairs" in done.stdout

    (tmp_path / "work/corpus/train.en").unlink()
    (tmp_path / "work/corpus/archives/training-parallel-commoncrawl.tgz").unlink()
    write("files/commoncrawl.de-en.de", "de three\nde more\n")
    with tarfile.open(tmp_path / "site/wmt13/training-parallel-commoncrawl.tgz", "w:gz") as archive:
        for language in ("en", "de"):
            archive.add(tmp_path / f"files/commoncrawl.de-en.{language}", arcname=f"commoncrawl.de-en.{language}")
    done = recipe("wmt14_en_de", "download", WMT_SITE=site)
    assert done.returncode == 2 and "commoncrawl.tgz, has SHA-256 " in done.stderr
    assert ", not, as when it was first fetched, " in done.stderr
    (tmp_path / "work/corpus/archives/SHA256SUMS").unlink()
    done = recipe("wmt14_en_de", "download", WMT_SITE=site)
    assert done.returncode == 2 and "has 1 English and 2 other lines" in done.stderr
    assert not (tmp_path / "work/corpus/train.en").exists()


def test_a_run_from_text_to_scores(recipe, write, tmp_path):
    """Baseline, a system that starts from it at a lower rank, and their comparison."""
    folder = write_corpus(write, ("train", "newstest2012", "newstest2013", "newstest2014"), ("en", "fr"))
    settings = {"CORPUS": str(folder), "SIZE": "tiny", "EPOCHS": "1", "MERGES": "20", "BEAM": "1"}
    done = recipe("wmt14_en_fr", **settings)
    assert done.returncode == 0, done.stderr
    valid = (tmp_path / "work/prepared/clean/valid.en").read_text().splitlines()
    assert len(valid) == 24  # both sets
    done = recipe("wmt14_en_fr", "train", "average", "translate", "score", "compare", SYSTEM="heads_rank32", **settings)
    assert done.returncode == 0, done.stderr
    assert "its function changes: --composition-rank 32 approximates" in done.stdout
    run = tmp_path / "work/tiny-heads_rank32-seed1"
    assert (run / "newstest2014.fr").read_text(encoding="utf-8").count("\n") == 12
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in (run / "scores.txt").read_text()
    table = (tmp_path / "work/tiny-compare-seed1.txt").read_text()
    assert "tiny-baseline-seed1" in table and "tiny-heads_rank32-seed1" in table and "(p = " in table
    again = recipe("wmt14_en_fr", "train", "translate", SYSTEM="heads_rank32", **settings)
    assert again.returncode == 0 and "trained before" in again.stdout and "translated before" in again.stdout
    other = recipe("wmt14_en_fr", "train", SYSTEM="heads_rank32", **{**settings, "LR": "1e-5"})
    assert other.returncode == 2 and "was trained with other settings or data" in other.stderr
    for changed, message in (
        ({"LR": "1e-5"}, "was trained with other settings or data (train.settings there has them); give the settings"),
        (
            {"BEAM": "2"},
            "newstest2014.fr is not of beam 2 lenpen 0.6, or older than the model; run the stage translate",
        ),
        ({"MERGES": "30"}, "was prepared with MERGES=20 TOKENIZED=0 MAX_WORDS=250 MAX_PIECES=250, not MERGES=30 "),
    ):
        other = recipe("wmt14_en_fr", "score", SYSTEM="heads_rank32", **{**settings, **changed})
        assert other.returncode == 2 and message in other.stderr and other.stderr.count("\n") == 1
