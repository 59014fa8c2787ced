"""score: sacrebleu's own figures, sentences matched by id, kinds of text, perplexity, one-line errors."""

import json
import math
import os
import random
import subprocess
import sys

import pytest
from sacrebleu.metrics import BLEU

from informer_fairseq.errors import InputError
from informer_fairseq.tools import scoring, text_kinds
from informer_fairseq.tools.main import main

WORDS = "one two three four five six seven eight nine ten".split()


def corpus(count=60, seed=5):
    """Sources of 1 to 25 words, references and two systems: ordinary text with full stops and commas."""
    draw = random.Random(seed)
    sources, references, good, poor = [], [], [], []
    for _ in range(count):
        words = [draw.choice(WORDS) for _ in range(draw.randint(1, 25))]
        sources.append(" ".join(words) + ".")
        references.append(" ".join(words) + ", yes.")
        for texts, rate in ((good, 0.1), (poor, 0.35)):
            kept = [draw.choice(WORDS) if draw.random() < rate else word for word in words]
            texts.append(" ".join(kept) + ", yes.")
    return sources, references, good, poor


def generated(sources, references, hypotheses, order=None):
    """What fairseq-generate prints, in another order than the text's."""
    order = order or list(reversed(range(len(hypotheses))))
    blocks = []
    for n in order:
        blocks += [f"S-{n}\t{sources[n]}", f"T-{n}\t{references[n]}"]
        blocks += [f"H-{n}\t-0.5\t{hypotheses[n]}", f"D-{n}\t-0.5\t{hypotheses[n]}", f"P-{n}\t-0.5 -0.5"]
    return "\n".join(["INFO a log line", *blocks, "Generate test with beam=1: BLEU4 = 1.00"]) + "\n"


@pytest.fixture
def files(write):
    """Paths of a corpus: source, reference, good and poor as plain text, generate as the good one's output."""
    sources, references, good, poor = corpus()
    texts = {"source": sources, "reference": references, "good": good, "poor": poor}
    paths = {name: str(write(name, "\n".join(lines) + "\n")) for name, lines in texts.items()}
    paths["generate"] = str(write("good.generate", generated(sources, references, good)))
    return paths


def score(tmp_path, *words):
    """What the command writes as JSON."""
    assert main(["score", *words, "--json", str(tmp_path / "s.json")]) == 0
    return json.loads((tmp_path / "s.json").read_text("utf-8"))


def sacrebleu(*words):
    """What sacrebleu's own command prints as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "sacrebleu", *words, "-m", "bleu", "chrf", "-f", "json", "-w", "9"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


@pytest.mark.parametrize("tokenised", [False, True])
def test_scores_and_signatures_are_those_of_sacrebleus_command(files, tmp_path, write, tokenised):
    reference, good, options, ours = files["reference"], files["good"], [], []
    if tokenised:
        options, ours = ["--tokenize", "none", "--force"], ["--tokenized"]
        spaced = [open(path).read().replace(",", " ,").replace(".", " .") for path in (reference, good)]
        reference, good = (str(write(name, text)) for name, text in zip(("r.tok", "g.tok"), spaced))
    bleu, chrf = sacrebleu(reference, "-i", good, *options)
    found = score(tmp_path, good, "--reference", reference, *ours)["systems"][good]["scores"]
    assert (f"{found['BLEU']['score']:.9f}", f"{found['chrF2']['score']:.9f}") == (
        f"{bleu['score']:.9f}",
        f"{chrf['score']:.9f}",
    )
    assert found["BLEU"]["signature"] == bleu["signature"]
    assert found["chrF2"]["signature"] == chrf["signature"]


@pytest.mark.parametrize("test, flags", [("bs", ["--paired-bs-n", "200"]), ("ar", ["--paired-ar-n", "200"])])
def test_paired_tests_are_those_of_sacrebleus_command(files, tmp_path, test, flags):
    reference, good, poor = files["reference"], files["good"], files["poor"]
    theirs = sacrebleu(reference, "-i", poor, good, f"--paired-{test}", *flags)
    runs = [good, poor, "--reference", reference, "--baseline", poor, f"--paired-{test}", "--samples", "200"]
    found = score(tmp_path, *runs)
    assert found["baseline"] == poor
    for row, name in zip(theirs, (poor, good)):
        for ours, key in (("BLEU", "BLEU"), ("chrF2", "chrF2")):
            assert found["significance"][ours]["systems"][name] == row[key]
    assert 0 < found["significance"]["BLEU-1"]["systems"][good]["p_value"] < 0.05
    assert f"{test}:200|seed:12345" in found["significance"]["BLEU"]["signature"]


def test_bleu_1_by_hand():
    hypotheses, references = ["a b c", "d d"], [["a b x", "d e f"]]
    found = scoring.score(scoring.build_measures(references, True), hypotheses)["BLEU-1"]
    assert found["score"] == pytest.approx(100 * math.exp(1 - 6 / 5) * 3 / 5)  # a, b and one d of five words
    assert found["signature"].endswith("|max_ngram_order:1")


def test_generate_output_is_matched_by_id_and_brings_references_and_sources(files, tmp_path):
    plain = score(
        tmp_path, files["good"], "--reference", files["reference"], "--source", files["source"], "--by-length"
    )
    matched = score(tmp_path, f"g={files['generate']}", "--by-length")
    assert matched["systems"]["g"]["scores"] == plain["systems"][files["good"]]["scores"]
    assert matched["by_length"]["groups"] == plain["by_length"]["groups"]
    assert matched["by_length"]["BLEU"]["g"] == plain["by_length"]["BLEU"][files["good"]]


def test_pieces_are_joined_and_tokens_detokenised_on_request(write, tmp_path):
    tokens = "He did n@@ 't go , Ann &apos;s friend said ."
    path = write("a/test.generate", f"S-0\tx .\nT-0\t{tokens}\nH-0\t0\t{tokens}\n")
    joined = score(tmp_path, str(path.parent), "--remove-bpe", "--detokenize", "en")
    assert joined["systems"][str(path.parent)]["scores"]["BLEU"]["score"] == pytest.approx(100)
    raw = write("raw", "He did n't go, Ann's friend said.\n")
    again = score(tmp_path, str(path), "--remove-bpe", "--detokenize", "en", "--reference", str(raw))
    assert again["systems"][str(path)]["scores"]["BLEU"]["score"] == pytest.approx(100)


def test_groups_by_source_length(files, tmp_path):
    options = ["--reference", files["reference"], "--source", files["source"], "--by-length", "5", "12"]
    found = score(tmp_path, files["good"], *options)["by_length"]
    sources, references, good, _ = corpus()
    middle = [n for n, line in enumerate(sources) if 6 <= len(line.split()) <= 12]
    assert [group["length"] for group in found["groups"]] == ["up to 5", "6-12", "over 12"]
    assert sum(group["sentences"] for group in found["groups"]) == len(sources)
    assert found["groups"][1]["sentences"] == len(middle)
    alone = BLEU().corpus_score([good[n] for n in middle], [[references[n] for n in middle]]).score
    assert found["BLEU"][files["good"]][1] == alone


def test_an_empty_group_has_no_score():
    groups = scoring.group_by_length(["a b", ""], [3, 9])
    assert groups == [("up to 3", [0, 1]), ("4-9", []), ("over 9", [])]
    assert scoring.score_groups(groups, ["a b", ""], [["a b", "c"]], True)[1:] == [None, None]


def test_identical_systems_are_told_and_not_called_significant(files, capsys, write):
    twin = str(write("twin", open(files["good"]).read()))
    runs = [files["good"], twin, "--baseline", files["good"], "--reference", files["reference"], "--samples", "50"]
    assert main(["score", *runs]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {twin}"))
    assert "identical" in row and "p =" not in row


@pytest.mark.parametrize(
    "lines, kind",
    [
        (["Ein Mann , der et@@ was an@@ starrt ."], text_kinds.PIECES),
        (["\u2581Ein \u2581Mann ."], text_kinds.PIECES),
        (["Ein Mann , der etwas anstarrt ."], text_kinds.TOKENISED),
        (["It &apos;s"], text_kinds.TOKENISED),
        (["a well @-@ known man"], text_kinds.TOKENISED),
        (["Ein Mann, der etwas anstarrt."], text_kinds.ORDINARY),
        (["Vraiment ? Oui ; c'est vrai : non !", "Bon, d'accord."], text_kinds.ORDINARY),
        (["write to me@@example"] + ["Fine."] * 10, text_kinds.ORDINARY),
        (["a man"], text_kinds.UNDECIDED),
        ([""], text_kinds.UNDECIDED),
    ],
)
def test_kinds_of_text(lines, kind):
    assert text_kinds.kind_of(lines) == kind


def test_perplexity_of_a_log_is_its_last_validation(files, tmp_path, write):
    log = write("train.log", "epoch 001 | valid on 'valid' subset | loss 9 | nll_loss 3 | ppl 8 | num_updates 10\n")
    found = score(tmp_path, f"g={files['generate']}", "--log", f"g={log}")
    [one] = found["systems"]["g"]["perplexity"]
    assert (one["set"], one["perplexity"], one["bits"]) == ("valid", 8.0, 3.0)


def test_perplexity_of_an_untrained_flat_model_is_its_number_of_types(data_bin, tmp_path):
    import torch
    from fairseq.data import Dictionary

    from informer_fairseq.tools.perplexity import from_checkpoint
    from tests.support.models import SMALL, build, flags

    words = [Dictionary.load(str(data_bin[0] / f"dict.{language}.txt")) for language in ("en", "vi")]
    sizes = {name: value for name, value in SMALL.items() if not name.endswith("_length")}
    args = flags("transformer", **sizes, task="translation", criterion="cross_entropy", optimizer="adam")
    args.source_lang, args.target_lang, args.lr_scheduler = "en", "vi", "fixed"
    model = build("transformer", len(words[0]), len(words[1]), **sizes)
    model.decoder.output_projection.weight.data.zero_()  # every word as likely as any other
    history = [{"criterion_name": "CrossEntropyCriterion", "optimizer_name": "Adam", "lr_scheduler_state": {}}]
    state = {"args": args, "model": model.state_dict(), "optimizer_history": history, "extra_state": {"epoch": 1}}
    torch.save({**state, "last_optimizer_state": None}, tmp_path / "c.pt")
    found = from_checkpoint(str(tmp_path / "c.pt"), str(data_bin[0]), "test", 400)
    assert found["perplexity"] == pytest.approx(len(words[1]), rel=1e-6)
    assert found["bits"] == pytest.approx(math.log2(len(words[1])))


ERRORS = [
    (["{good}"], "has no references"),
    (["{good}", "--reference", "{short}"], "60 translations"),
    (["{good}", "{good}", "--reference", "{reference}"], "two systems are called"),
    (["{good}", "--reference", "{reference}", "--baseline", "{good}"], "at least one more system"),
    (["{pieces}", "--reference", "{reference}"], "is in pieces"),
    (["{tokens}", "--reference", "{reference}"], "is tokenised"),
    (["{good}", "--reference", "{reference}", "--tokenized"], "is ordinary text"),
    (["{generate}", "{other}"], "different test sets"),
    (["{generate}", "--reference", "{shifted}"], "not the same sentences"),
    (["{missing}"], "lacks H- or D-lines for 1 of 60 sentences (7)"),
    (["{twice}"], "second hypothesis for sentence 3"),
    (["{unknown}"], "hold <<unk>>"),
    (["{folder}"], "no run in"),
    (["{nowhere}"], "no such file"),
    (["{generate}", "--log", "x={good}"], "names no system"),
    (["{generate}", "--paired-ar"], "give --baseline"),
    (["{generate}", "--by-length", "9", "3"], "increasing lengths"),
    (["{good}", "--reference", "{reference}", "--by-length"], "give --source FILE"),
    (["{generate}", "--remove-bpe", "sentencepiece"], "drop --remove-bpe sentencepiece"),
]


@pytest.mark.parametrize("words, told", ERRORS, ids=[told for _, told in ERRORS])
def test_errors_are_one_line(words, told, files, write, tmp_path, capsys):
    sources, references, good, _ = corpus()
    whole = generated(sources, references, good)
    other = [f"not {line}" for line in references]
    texts = {
        "short": "\n".join(references[:-1]) + "\n",
        "pieces": "\n".join(line.replace("ne", "n@@ e") for line in good) + "\n",
        "tokens": "\n".join(line.replace(".", " .").replace(",", " ,") for line in good) + "\n",
        "other": generated(sources, other, good),
        "shifted": "\n".join(references[1:] + references[:1]) + "\n",
        "missing": "\n".join(line for line in whole.split("\n") if line[:3] not in ("H-7", "D-7")) + "\n",
        "twice": whole + "H-3\t-1\tagain.\n",
        "unknown": generated(sources, ["<<unk>>, yes."] + references[1:], good),
    }
    paths = {**files, "folder": str(tmp_path), "nowhere": str(tmp_path / "nowhere")}
    (tmp_path / "good.generate").rename(tmp_path / "sub")
    paths["generate"] = str(tmp_path / "sub")
    paths.update({name: str(write(name, text)) for name, text in texts.items()})
    assert main(["score", *(word.format(**paths) for word in words), "--json", str(tmp_path / "s.json")]) == 2
    message = capsys.readouterr().err.strip()
    assert told in message and "\n" not in message
    assert not (tmp_path / "s.json").exists()


def test_too_many_hypotheses_are_an_error(files, write, tmp_path):
    with open(files["generate"]) as handle:
        longer = write("longer", handle.read() + "H-60\t-1\tmore, yes.\n")
    from informer_fairseq.tools.translations import pick_references, read_system

    with pytest.raises(InputError, match="lacks H- or D-lines for 1 of 61"):
        read_system(str(longer), None, None)
    text = "\n".join(line for line in open(longer).read().split("\n") if line[:1] not in "STD") + "\n"
    system = read_system(str(write("hypotheses", text)), None, None)
    with pytest.raises(InputError, match="has 61 translations"):
        pick_references([system], [files["reference"]])
