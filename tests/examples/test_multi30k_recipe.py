"""The Multi30k recipe: refusals, what its systems are, one run from text to a table, the figures of the table."""

import gzip
import json
from pathlib import Path

import pytest
from fairseq import options

import informer_fairseq  # noqa: F401  (registers the architectures)
from informer_fairseq.tools.run_summaries import read_training
from preprocess.files import InputError
from tests.support.corpora import load_script, run_recipe, write_corpus

SETS = ("train", "val", "test_2016_flickr")


@pytest.fixture
def recipe(root, tmp_path):
    """Runs the recipe from another folder."""
    return lambda *arguments, **settings: run_recipe(root, "multi30k_en_de", tmp_path, *arguments, **settings)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((), {}, "give a system and a seed, such as: run.sh informer_mt 1; the systems are conv_linformer_mt "),
        (("informer_mt",), {}, "give a system and a seed"),
        (("informer_mt", "one"), {}, "SEED is 'one'; it is a whole number, 0 or more, of nine digits at most"),
        (("informer_mt", "1"), {"AVERAGE": "08"}, "AVERAGE is '08'; it is a whole number, 0 or more"),
        (("informer_mt", "1"), {"UPDATES": "0"}, "UPDATES is '0'; it is a whole number, 1 or more"),
        (("informer_mt", "1", "nope"), {}, "no stage 'nope'; the stages are download prepare train average"),
        (("informer_mt", "1"), {"SCHEDULE": "medium"}, "SCHEDULE is 'medium'; it is short or long"),
        (("informer_mt", "1"), {"LOWERCASE": "yes"}, "LOWERCASE is 'yes'; it is 0 or 1"),
        (("informer_mt", "1"), {"THREADS": "0"}, "THREADS is '0'; it is a whole number, 1 or more"),
        (("informer_mt", "1"), {"CPU": "yes"}, "CPU is 'yes'; it is 1, 0 or auto"),
        (("informer_mt", "1"), {"CORPUS": "nowhere"}, "no such file: nowhere/train.en; a corpus has train, val, test_"),
        (("informer_mt", "1", "train"), {}, "run the stage before, or all of them"),
    ],
)
def test_refusals_are_one_line(recipe, tmp_path, arguments, settings, message):
    done = recipe(*arguments, **settings)
    assert done.returncode == 2
    assert done.stderr.startswith("run.sh: error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "work").exists()


def test_systems_are_of_one_size(root):
    """Each is a set of flags that fairseq-train takes, 128 wide; one factor at a time differs from its arch."""
    systems = {}
    for path in sorted((root / "examples/multi30k_en_de/systems").iterdir()):
        words = ["data", *path.read_text(encoding="utf-8").split()]
        systems[path.stem] = options.parse_args_and_arch(options.get_training_parser(), words)
    for name, args in systems.items():
        assert (args.encoder_embed_dim, args.decoder_ffn_embed_dim, args.decoder_attention_heads) == (128, 256, 4), name
        depth = {"6_2": (6, 2), "12_1": (12, 1)}.get(name.split("_", 1)[1] if "_" in name else "", (4, 4))
        assert (args.encoder_layers, args.decoder_layers) == depth, name
    for name, (field, value) in {
        "informer_mt_n64": ("encoder_fixed_length", 64),
        "informer_mt_r4": ("encoder_reduced_length", 4),
        "informer_mt_pool1": ("encoder_pool_size", 1),
        "informer_mt_no_null_slots": ("encoder_drop_null_slots", True),
        "informer_mt_sharing_none": ("encoder_projection_sharing", "none"),
        "full_informer": ("encoder_token_mixer", "full"),
    }.items():
        changed = {key for key, kept in vars(systems["informer_mt"]).items() if vars(systems[name]).get(key) != kept}
        assert getattr(systems[name], field) == value and field in changed
        read = {"encoder_reduced_length", "encoder_pool_size", "encoder_projection_sharing"}
        assert changed - read <= {field}


def test_the_download_counts_lines(recipe, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    for name, lines in zip(SETS, (29000, 1014, 999)):
        for language in ("en", "de"):
            with gzip.open(site / f"{name}.{language}.gz", "wt") as handle:
                handle.write("a\n" * lines)
    done = recipe("informer_mt", "1", "download", MULTI30K_SITE=f"file://{site}")
    assert done.returncode == 2
    assert "test_2016_flickr.en.gz has 999 lines, not 1000: remove it and try again" in done.stderr


def test_a_run_from_text_to_a_row(recipe, root, write, tmp_path, capsys):
    """A baseline, and a system that starts from it; both in one table."""
    folder = write_corpus(write, SETS, ("en", "de")).rename(tmp_path / "my corpus")
    settings = {
        "CORPUS": str(folder),
        "UPDATES": "2",
        "MERGES": "20",
        "BEAM": "1",
        "WARMUP": "1",
        "OMP_NUM_THREADS": "2",
        "BPE_DROPOUT": "0.1",  # of another recipe: this one has no such setting
    }
    done = recipe("transformer", "1", **{**settings, "WORK": "work"})  # relative here, absolute from now on
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    assert len((work / "prepared/segmented/train.en").read_text().splitlines()) == 12
    summary = json.loads((work / "transformer-seed1/summary.json").read_text())
    assert (summary["system"], summary["seed"]) == ("transformer", 1)
    assert "SCHEDULE=short MERGES=20 UPDATES=2 MAX_TOKENS=2048 LR=2e-3 WARMUP=1 DROPOUT=0.1" in summary["settings"]
    assert [epoch["updates"] for epoch in summary["epochs"]] == [1, 2]
    assert summary["losses"] == {}  # logged every 100 updates
    assert summary["best_valid_perplexity"] == min(epoch["valid_perplexity"] for epoch in summary["epochs"])
    assert set(summary["scores"]) == {"BLEU", "BLEU-1", "chrF2", "BLEU, lower-cased tokens"}
    assert "|case:lc|" in summary["scores"]["BLEU, lower-cased tokens"]["signature"]
    (environment,) = summary["environment"]
    assert environment.startswith("commit ") and "torch " in environment
    assert environment.endswith(" 1 threads")  # whatever OMP_NUM_THREADS says: other numbers of threads round otherwise
    first = (work / "transformer-seed1/train.log").read_bytes()
    again = recipe("transformer", "1", **settings)
    assert again.returncode == 0 and "trained before" in again.stdout
    assert (work / "transformer-seed1/train.log").read_bytes() == first

    # Scored alone, it takes no other setting's name.
    for changed, message in (
        ({"LR": "1e-3"}, "transformer-seed1 was trained with other settings or data (train.settings there has them); "),
        ({"UPDATES": "3", "RUN": "transformer-seed1"}, "transformer-seed1 was trained with other settings or data"),
        (
            {"BEAM": "2"},
            "test_2016_flickr.de is not of checkpoint_best.pt beam 2, or older than the model; run the stage",
        ),
        (
            {"MERGES": "30"},
            "work/prepared was prepared with MERGES=20 LOWERCASE=0, not MERGES=30 LOWERCASE=0; give those",
        ),
        ({"AVERAGE": "1"}, "/averaged.pt; run the stage before, or all of them"),
    ):
        done = recipe("transformer", "1", "score", **{**settings, **changed})
        assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1
    assert json.loads((work / "transformer-seed1/summary.json").read_text()) == summary

    done = recipe("transformer", "1", SCHEDULE="long", **settings)
    assert done.returncode == 0, done.stderr
    # Both can stand in one table. Two epochs are all there are to average.
    long = work / "transformer-long-seed1"
    summary = json.loads((long / "summary.json").read_text())
    assert summary["system"] == "transformer-long" and " AVERAGE=2 " in summary["settings"]
    for stage in ("translate", "score"):
        done = recipe("transformer", "1", stage, SCHEDULE="long", **{**settings, "AVERAGE": "1"})
        assert done.returncode == 2 and "averaged.pt is not of the last checkpoints, as AVERAGE=1 asks" in done.stderr
    done = recipe("transformer", "1", "score", SCHEDULE="long", **{**settings, "UPDATES": "1"})
    assert done.returncode == 2 and "was trained with UPDATES=2, not UPDATES=1; give the settings" in done.stderr
    (long / "train.done").unlink()
    done = recipe("transformer", "1", "score", SCHEDULE="long", **settings)
    assert done.returncode == 2 and "is not trained to its end; run the stage train" in done.stderr

    started = ("train", "average", "translate", "score")
    done = recipe("ni_row7", "1", *started, START="transformer", **settings)
    assert done.returncode == 0, done.stderr
    (work / "transformer-seed1/checkpoints/checkpoint_best.pt").touch()
    done = recipe("ni_row7", "1", "train", START="transformer", **settings)
    assert done.returncode == 2 and "as it was before it was trained anew; set RUN to a new name" in done.stderr
    runs = [str(work / "transformer-seed1"), str(work / "ni_row7-from-transformer-seed1")]
    costs_file = tmp_path / "costs.json"
    costs = load_script(root, "multi30k_en_de/costs.py")
    few = ["--batches", "1", "--rounds", "1", "--beam", "1", "--output", str(costs_file)]
    costs.main([str(work / "prepared/data-bin"), *runs, *few])
    found = json.loads(costs_file.read_text())["systems"]
    assert list(found) == ["transformer", "ni_row7 from transformer"]
    assert [figures["parameters"] for figures in found.values()] == [
        json.loads(Path(run, "summary.json").read_text())["parameters"] for run in runs
    ]
    for key in ("training speed", "bytes kept", "decoding speed"):
        assert found["transformer"][key]["figure"] == 1
    # Composed heads keep their two factors and the product besides.
    assert found["ni_row7 from transformer"]["bytes kept"]["figure"] > 1

    table = load_script(root, "multi30k_en_de/table.py")
    capsys.readouterr()
    where = ["--reference", str(work / "prepared/clean/test.de"), "--costs", str(costs_file)]
    table.main([*reversed(runs), *where, "--output", str(tmp_path / "table.md")])
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in printed.splitlines()]
    assert [row[0] for row in rows[2:]] == ["`transformer`", "`ni_row7 from transformer`"]  # the baseline leads
    assert [row[1] for row in (rows[0], *rows[2:])] == ["settings", "", "START=transformer"]
    assert rows[0][4:7] == [f"{name}, of transformer's" for name in table.COSTS] and rows[2][4:7] == ["1.00"] * 3
    assert (tmp_path / "table.md").read_text() == printed


def test_losses_are_those_of_the_log(tmp_path):
    """A training that was resumed logs some updates again: the last figure holds."""
    line = (
        "2026-01-01 | INFO | train_inner | epoch 002:     60 / 240 loss={}, nll_loss=6.9, ppl=1, num_updates={}, lr=0.1"
    )
    valid = "2026-01-01 | INFO | valid | epoch 002 | valid on 'valid' subset | nll_loss 7.0 | ppl 128 | num_updates 480"
    epoch = (
        "2026-01-01 | INFO | train | epoch 002 | loss nan | nll_loss 6.5 | ppl 90 | wps 100 | num_updates 480 | lr 1"
    )
    head = "2026-01-01 | INFO | fairseq_cli.train | num. shared model params: 2,099,200 (num. trained: 2,099,200)"
    log = tmp_path / "train.log"
    lines = [
        head,
        *(line.format(*values) for values in ((9.5, 100), (8.25, 200), (8.5, 200), (7.796, 300), ("inf", 400))),
        epoch,
        valid,
    ]
    log.write_text("".join(f"{text}\n" for text in lines))
    found = read_training(str(log))
    assert found["losses"] == {"100": 9.5, "200": 8.5, "300": 7.796, "400": None}  # not finite
    assert found["epochs"] == [{"epoch": 2, "updates": 480, "loss": None, "nll_loss": 6.5, "valid_perplexity": 128.0}]
    assert found["parameters"] == 2_099_200


def test_settings_with_spaces_stay_whole(root):
    table = load_script(root, "multi30k_en_de/table.py")
    settings = "UPDATES={0} LR=1 EXTRA_ARGS=--lr-scheduler polynomial_decay --total-num-update {0}"
    runs = {name: {1: ({"settings": settings.format(name)}, [])} for name in ("10", "20")}
    extra = "EXTRA_ARGS=--lr-scheduler polynomial_decay --total-num-update"
    assert table.settings_that_differ(runs) == {name: f"UPDATES={name} {extra} {name}" for name in runs}


def test_differences_are_those_of_the_whole_scores(root):
    """The mean over draws lies at the difference of the corpus scores; equal systems differ by nothing."""
    table = load_script(root, "multi30k_en_de/table.py")
    references = [f"a{n} b{n} c{n} d{n} e{n} f{n}" for n in range(60)]
    worse = [line if n % 3 else line.replace(f"c{n}", "x") for n, line in enumerate(references)]
    assert (table.differences([worse], [worse], references) == 0).all()
    drawn = table.differences([references, worse], [worse, worse], references)
    measure = table.BLEU(references=[references])
    exact = (100 - measure.corpus_score(worse, None).score) / 2
    assert abs(drawn.mean() - exact) < 0.2 and drawn.std() > 0.1
    assert (drawn > 0).all()


def test_the_table_shows_settings_that_differ(root):
    """What all runs share is not repeated."""
    table = load_script(root, "multi30k_en_de/table.py")
    runs = {
        "transformer": {1: ({"settings": "LR=2e-3 UPDATES=9"}, []), 2: ({"settings": "LR=2e-3 UPDATES=9"}, [])},
        "slow": {1: ({"settings": "LR=1e-3 UPDATES=9"}, [])},
    }
    assert table.settings_that_differ(runs) == {"transformer": "LR=2e-3", "slow": "LR=1e-3"}
    assert not any(table.settings_that_differ({"transformer": runs["transformer"]}).values())


def test_the_table_reads_another_recipes_runs(root, tmp_path):
    """Its scores, whatever they are called, against tokenised references."""
    table = load_script(root, "multi30k_en_de/table.py")
    tokens = "Tom &apos;s cat sat on the mat , didn &apos;t it ?"
    texts = {"good": ("Tom's cat sat on the mat, didn't it?", tokens)}
    texts["bad"] = "Tom's cat, on the mat, sat.", "Tom &apos;s cat , on the mat , sat ."
    for system, (text, cut) in texts.items():
        folder = tmp_path / system
        folder.mkdir()
        summary = {"system": system, "seed": 1, "settings": "LR=1", "parameters": 1000, "best_valid_perplexity": 2.5}
        found = {"tst2013 BLEU": table.BLEU().corpus_score([text], [[texts["good"][0]]])}
        found["tst2013 BLEU, tokens"] = table.BLEU(tokenize="none").corpus_score([cut], [[tokens]])
        scores = {name: {"score": score.score, "signature": ""} for name, score in found.items()}
        (folder / "summary.json").write_text(json.dumps({**summary, "scores": scores}))
        (folder / "tst2013.vi").write_text(f"{text}\n")
        (folder / "tst2013.tokenised.vi").write_text(f"{cut}\n")
    (tmp_path / "ref").write_text(f"{tokens}\n")
    runs = [str(tmp_path / "good"), str(tmp_path / "bad"), "--baseline", "bad", "--reference", str(tmp_path / "ref")]
    bad = {name: score.score for name, score in found.items()}
    assert bad["tst2013 BLEU"] != pytest.approx(bad["tst2013 BLEU, tokens"], abs=0.1)
    for hypotheses, more, compared in (
        ("tst2013.vi", ["--detokenize", "en"], "tst2013 BLEU"),
        ("tst2013.tokenised.vi", [], "tst2013 BLEU, tokens"),
    ):
        table.main([*runs, "--hypotheses", hypotheses, *more, "--output", str(tmp_path / "table.md")])
        lines = (tmp_path / "table.md").read_text().splitlines()
        rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in lines]
        assert rows[0][4:] == ["tst2013 BLEU", "tst2013 BLEU, tokens", f"{compared} less bad's, 95%"]
        expected = f"{100 - bad[compared]:+.2f}"  # one sentence: every draw is the same
        assert rows[3] == ["`good`", "1", "1,000", "2.50", "100.00", "100.00", f"{expected} ({expected} to {expected})"]
    with pytest.raises(
        InputError, match=r"has BLEU [\d.]+ against --reference, none of its scores \(tst2013 BLEU 100.00, "
    ):
        table.main([*runs, "--hypotheses", "tst2013.vi"])  # ordinary text against tokens


def test_the_table_refuses_what_it_cannot_compare(root, tmp_path):
    table = load_script(root, "multi30k_en_de/table.py")
    for number, seed in enumerate((1, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "summary.json").write_text(json.dumps({"system": "informer_mt", "seed": seed}))
        (folder / "test_2016_flickr.de").write_text("a\n")
    with pytest.raises(InputError, match="a second run of informer_mt with seed 1; leave one out"):
        table.read_runs([str(tmp_path / "0"), str(tmp_path / "1")], "test_2016_flickr.de")
    with pytest.raises(InputError, match="has no summary.json: run the score stage there first"):
        table.read_runs([str(tmp_path)], "test_2016_flickr.de")
    (tmp_path / "ref").write_text("a\n")
    (tmp_path / "costs").write_text('{"systems": {"informer_mt": {"training speed": 1}}}')
    with pytest.raises(InputError, match="costs is not what costs.py --output writes .*: make it anew"):
        table.read_costs(str(tmp_path / "costs"))
    with pytest.raises(InputError, match="no run of transformer among informer_mt"):
        table.main([str(tmp_path / "0"), "--reference", str(tmp_path / "ref")])
