"""What fairseq's own test-suite asks of a translation model in generation, of every architecture and the stock one.

Models have seen ten batches: what is asserted is what a command makes of a model, not how good the model is. (Random
weights would do but for <s>, which they produce and fairseq does not print.)
"""

import math
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models.transformer import TransformerModel

from informer_fairseq.models._efficient import EfficientTransformerModel
from tests.support.commands import generate_small, hypotheses_of, interact, train_small
from tests.support.models import ALL_ARCHS

ARCHS = [*ALL_ARCHS, "transformer"]
FEW = ["informer_mt", "ni_transformer", "transformer"]  # where a command has nothing to do with the layers


@pytest.fixture(scope="module")
def saved(data_bin, tmp_path_factory):
    """Architecture -> (path of its checkpoint, the model, its task)."""
    folder, made = tmp_path_factory.mktemp("trained"), {}
    for arch in ARCHS:
        few = ["--criterion", "cross_entropy", "--lr", "1e-2", "--batch-size", "20", "--max-update", "10"]
        train_small(data_bin[0], folder / arch, arch, *few, "--disable-validation", "--seed", str(len(made) + 1))
        path = folder / arch / "checkpoint_last.pt"
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
        made[arch] = (path, model.eval(), task)
    return made


@pytest.fixture(scope="module")
def lines(data_bin):
    """Seven lines of the test set, the shortest two among them: (sources, targets), each a list of lists of words."""
    texts = [
        [line.split() for line in (data_bin[1] / f"test.{side}").read_text().splitlines()] for side in ("en", "vi")
    ]
    chosen = sorted(range(23), key=lambda number: len(texts[0][number]))[:2] + list(range(3, 8))
    return [[text[number] for number in chosen] for text in texts]


@pytest.fixture(scope="module")
def raw(data_bin, lines, tmp_path_factory):
    """A folder with these lines as fairseq's raw text, which keeps the words that --replace-unk puts in."""
    folder = tmp_path_factory.mktemp("raw")
    for side, text in zip(("en", "vi"), lines):
        (folder / f"dict.{side}.txt").write_bytes((data_bin[0] / f"dict.{side}.txt").read_bytes())
        (folder / f"test.en-vi.{side}").write_text("".join(" ".join(words) + "\n" for words in text))
    return folder


def translate(raw, path, output, *options):
    """``fairseq-generate`` of the lines in two batches of unequal size; every line has its hypotheses."""
    data = ["--dataset-impl", "raw", "-s", "en", "-t", "vi", "--batch-size", "4"]
    found = generate_small(raw, path, output, *data, *options)
    assert sorted(found) == list(range(7))
    return found


def forced_tokens(models, source, tokens, temperature=1.0):
    """The log-probability of each target index under the mean of the models, and the last model's attention."""
    words = models[0].encoder.dictionary.encode_line(" ".join(source), add_if_not_exist=False).long().unsqueeze(0)
    previous = torch.cat([tokens.new_tensor([models[0].decoder.dictionary.eos()]), tokens[:-1]]).unsqueeze(0)
    probabilities = []
    for model in models:
        logits, extra = model(words, torch.tensor([words.size(1)]), previous)
        probabilities.append(model.get_normalized_probs((logits / temperature, extra), log_probs=False)[0])
    mean = torch.stack(probabilities).mean(dim=0)
    return mean.gather(1, tokens.unsqueeze(1)).squeeze(1).log(), extra["attn"][0][0]


def forced_scores(models, source, words):
    """The same for target words, ``</s>`` behind them."""
    target = models[0].decoder.dictionary
    return forced_tokens(models, source, torch.tensor([target.index(word) for word in words] + [target.eos()]))


def assert_scores(hypotheses, models, sources, normalize=1.0):
    """Every printed score of every hypothesis is what the models say of it (fairseq prints four digits)."""
    for number, found in hypotheses.items():
        for hypothesis in found:
            expected, _ = forced_scores(models, sources[number], hypothesis.tokens)
            assert hypothesis.scores == pytest.approx(expected.tolist(), abs=2e-4)
            mean = expected.sum().item() / len(expected) ** normalize
            assert hypothesis.score == pytest.approx(mean, abs=2e-4)


def inference(task, models, sources, batch_size=4, **options):
    """What ``fairseq-generate`` does with these flags, in batches of unequal size: a list of hypotheses a source."""
    encode = models[0].encoder.dictionary.encode_line
    limits = {"max_len_a": 0, "max_len_b": 8, "min_len": 2}
    generator = task.build_generator(models, Namespace(**{**limits, **options}))
    found = []
    for first in range(0, len(sources), batch_size):
        rows = [encode(" ".join(words), add_if_not_exist=False).long() for words in sources[first : first + batch_size]]
        dataset = task.build_dataset_for_inference(rows, [len(row) for row in rows])
        sample = dataset.collater([dataset[number] for number in range(len(rows))])
        order = sample["id"].tolist()
        sample["id"] = sample["id"] + first  # the sentence's number in the whole data
        results = task.inference_step(generator, models, sample)
        found += [results[order.index(number)] for number in range(len(rows))]
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_prefixes_are_kept_and_alignments_point_at_the_source(arch, saved, raw, lines, tmp_path):
    """In a padded batch, too: the attention of the forced hypothesis alone is the expected value."""
    path, model, _ = saved[arch]
    options = ["--prefix-size", "2", "--print-alignment", "hard", "--beam", "3", "--nbest", "2"]
    found = translate(raw, path, tmp_path, *options)
    sources, targets = lines
    assert_scores(found, [model], sources)
    for number, hypotheses in found.items():
        assert len(hypotheses) == 2 or len(targets[number]) == 1  # after w </s> there is nothing left to search
        for hypothesis in hypotheses:
            kept = targets[number][:2]  # a sentence of one word has </s> as its second
            assert hypothesis.tokens[: len(kept)] == kept and (len(kept) == 2 or len(hypothesis.tokens) == 1)
            _, attention = forced_scores([model], sources[number], hypothesis.tokens)
            rows = attention[: len(hypothesis.tokens), : len(sources[number])]  # </s> takes no part on either side
            assert hypothesis.alignment == [f"{row.argmax().item()}-{place}" for place, row in enumerate(rows)]


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": True, "nbest": 3},
        {"sampling": True, "sampling_topk": 4},
        {"sampling": True, "sampling_topp": 0.5},
        {"temperature": 2.0},
        {"lenpen": 0.5},
        {"match_source_len": True, "max_len_a": 1, "max_len_b": 0, "min_len": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_search_returns_the_models_scores(arch, options, saved, lines):
    _, model, task = saved[arch]
    found = inference(task, [model], lines[0], beam=3, **options)
    for source, hypotheses in zip(lines[0], found):
        assert len(hypotheses) == 3
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            forced = forced_tokens([model], source, tokens, options.get("temperature", 1.0))[0]
            if "match_source_len" in options:
                assert len(tokens) == len(source) + 2  # one word more, in fairseq's count, and </s>, which is certain
                forced[-1] = 0.0
            torch.testing.assert_close(hypothesis["positional_scores"], forced, rtol=0, atol=1e-4)
            mean = forced.sum() / len(tokens) ** options.get("lenpen", 1.0)
            torch.testing.assert_close(hypothesis["score"], mean, rtol=0, atol=1e-4)


@pytest.mark.parametrize("options", [{"diverse_beam_groups": 2, "diverse_beam_strength": 0.5}, {"diversity_rate": 0.5}])
@pytest.mark.parametrize("arch", ARCHS)
def test_diverse_searches_do_not_depend_on_the_batch(arch, options, saved, lines):
    """Their scores hold the penalties, so that the sentence alone is the reference."""
    _, model, task = saved[arch]
    together = inference(task, [model], lines[0], beam=4, **options)
    for source, hypotheses in zip(lines[0], together):
        (alone,) = inference(task, [model], [source], beam=4, **options)
        assert [found["tokens"].tolist() for found in hypotheses] == [found["tokens"].tolist() for found in alone]
        torch.testing.assert_close([x["score"] for x in hypotheses], [x["score"] for x in alone], rtol=0, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
def test_sampling_from_one_type_is_greedy_search(arch, saved, lines):
    _, model, task = saved[arch]
    greedy = inference(task, [model], lines[0], beam=1)
    sampled = inference(task, [model], lines[0], beam=1, sampling=True, sampling_topk=1)
    nucleus = inference(task, [model], lines[0], beam=1, sampling=True, sampling_topp=1e-6)
    for found in (sampled, nucleus):
        assert [x[0]["tokens"].tolist() for x in found] == [x[0]["tokens"].tolist() for x in greedy]


@pytest.mark.parametrize("others", [("transformer",), ALL_ARCHS[:1], ALL_ARCHS[-1:], ARCHS], ids=str)
def test_an_ensemble_of_architectures_averages_their_probabilities(others, saved, raw, lines, tmp_path):
    names = ["informer_mt", *others]
    paths, models, _ = zip(*(saved[name] for name in names))
    found = translate(raw, ":".join(map(str, paths)), tmp_path, "--beam", "3")
    assert_scores(found, models, lines[0])


@pytest.mark.parametrize("arch", FEW)
def test_references_are_scored(arch, saved, raw, lines, tmp_path):
    path, model, _ = saved[arch]
    found = translate(raw, path, tmp_path, "--score-reference")
    assert {number: hypotheses[0].tokens for number, hypotheses in found.items()} == dict(enumerate(lines[1]))
    assert_scores(found, [model], lines[0])


@pytest.mark.parametrize("arch", ARCHS)
def test_soft_alignments_are_the_attention(arch, saved, lines):
    _, model, task = saved[arch]
    for source, hypotheses in zip(lines[0], inference(task, [model], lines[0], beam=2, print_alignment="soft")):
        _, attention = forced_tokens([model], source, hypotheses[0]["tokens"])
        rows = torch.tensor([[float(value) for value in row] for row in hypotheses[0]["alignment"]])
        torch.testing.assert_close(rows, attention, rtol=0, atol=1e-5)


@pytest.mark.parametrize("arch", FEW)
def test_constraints_appear_in_the_output(arch, saved, data_bin, write, capsys):
    text = write("constrained.txt", "w1 w2 w3\tv7\nw4\tv9\tv11 v12\nw5 w6 w7 w8 w9\n")
    path, model, _ = saved[arch]
    interact(data_bin[0], path, text, "--constraints", "--beam", "6", "--buffer-size", "3", "--batch-size", "3")
    found = hypotheses_of(capsys.readouterr().out)
    assert "v7" in found[0][0].tokens
    assert "v9" in found[1][0].tokens and "v11 v12" in " ".join(found[1][0].tokens)
    assert_scores(found, [model], [["w1", "w2", "w3"], ["w4"], ["w5", "w6", "w7", "w8", "w9"]])


@pytest.mark.parametrize("arch", ARCHS)
def test_interactive_input_does_not_depend_on_the_buffer(arch, saved, data_bin, write, capsys):
    """An empty line is a sentence; all lines come back in order."""
    text = write("lines.txt", "w1\n\nw3\nw4 w5 w6 w7 w8 w9 w10\nw11 unheard-of\n")
    results = []
    for buffers in (["1"], ["3", "--batch-size", "2"]):
        interact(data_bin[0], saved[arch][0], text, "--beam", "3", "--buffer-size", *buffers)
        out = capsys.readouterr().out
        results.append(hypotheses_of(out))
        assert [line.split("\t")[0] for line in out.splitlines() if line[0] == "H"] == [f"H-{n}" for n in range(5)]
    for found in results[1:]:
        for number, hypotheses in found.items():
            assert hypotheses[0].tokens == results[0][number][0].tokens
            assert hypotheses[0].score == pytest.approx(results[0][number][0].score, abs=1e-4)
    assert all(math.isfinite(hypotheses[0].score) for hypotheses in results[0].values())


@pytest.mark.parametrize("arch", FEW)
def test_unknown_words_are_replaced_by_the_words_they_attend_to(arch, saved, raw, lines, tmp_path):
    path, _, _ = saved[arch]
    unknowns = ["--unkpen", "-100", "--beam", "1", "--print-alignment"]
    plain = translate(raw, path, tmp_path / "plain", *unknowns)
    assert {word for found in plain.values() for word in found[0].tokens} == {"<unk>"}
    # An empty value asks for no dictionary of translations; the flag without a value would take "@@ " for its file.
    replaced = translate(raw, path, tmp_path / "replaced", *unknowns, "--replace-unk", "")
    for number, found in replaced.items():
        pairs = [pair.split("-") for pair in found[0].alignment]
        assert found[0].tokens == [lines[0][number][int(place)] for place, _ in pairs]


@pytest.mark.parametrize("arch", ARCHS)
def test_the_hub_interface_translates_and_scores(arch, saved, raw, lines):
    path, model, task = saved[arch]
    own = TransformerModel if arch == "transformer" else EfficientTransformerModel
    hub = own.from_pretrained(str(path.parent), path.name, str(raw)).eval()
    limits = {"max_len_a": 0, "max_len_b": 8, "min_len": 2}
    sentences = [" ".join(words) for words in lines[0]]
    found = inference(task, [model], lines[0], beam=3)
    assert hub.translate(sentences, beam=3, **limits) == [hub.string(x[0]["tokens"]) for x in found]
    assert hub.translate(sentences[0], beam=3, **limits) == hub.string(found[0][0]["tokens"])
    with pytest.raises(TypeError, match="prev_output_tokens"):  # fairseq says: no translation tasks currently
        hub.score(sentences[0])
