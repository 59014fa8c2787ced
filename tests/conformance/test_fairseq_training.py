"""What fairseq's own test-suite asks of a translation model in training, of every architecture and the stock one.

The training set is one batch, so that an update is an epoch and what changes the batch must not change the weights.
"""

import shutil

import pytest
import sacrebleu
import torch
from fairseq import checkpoint_utils
from fairseq_cli import score

from tests.support.commands import generate_small, train_small, validate_small
from tests.support.models import ALL_ARCHS

ARCHS = [*ALL_ARCHS, "transformer"]
FEW = ["informer_mt", "ni_transformer", "transformer"]  # where a command has nothing to do with the layers
AVERAGED = ["--store-ema", "--ema-decay", "0.5"]
ONE_BATCH = ["--batch-size", "13", "--max-update", "3"]


@pytest.fixture(scope="module")
def one_batch(data_bin, tmp_path_factory):
    """A data-bin whose training set is its validation set. (--train-subset valid would share one iterator.)"""
    folder = tmp_path_factory.mktemp("one_batch") / "bin"
    shutil.copytree(data_bin[0], folder)
    for path in folder.glob("valid.*"):
        shutil.copy(path, folder / path.name.replace("valid", "train"))
    return folder


@pytest.fixture(scope="module")
def runs(one_batch, tmp_path_factory):
    """Architecture -> (folder of checkpoints 1 to 3, the last one's content); with a moving average of the weights."""
    made = {}

    def run(arch):
        if arch not in made:
            folder = tmp_path_factory.mktemp(arch)
            made[arch] = folder, train_small(one_batch, folder, arch, *ONE_BATCH, *AVERAGED)
        return made[arch]

    return run


def validation_loss(state):
    return state["extra_state"]["val_loss"]


@pytest.mark.parametrize(
    "more",
    [
        ["--update-freq", "2", "--batch-size", "7", "--left-pad-source"],
        ["--num-batch-buckets", "2", "--batch-size-valid", "1", "--max-tokens", "600"],
        ["--offload-activations", "--max-tokens-valid", "40", "--left-pad-target"],
    ],
    ids=lambda more: " ".join(more[:1]),
)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_same_sentences_give_the_same_weights(arch, more, runs, one_batch, tmp_path):
    """Over half batches, in buckets, padded on the other side, recomputed, in other batches of validation."""
    _, expected = runs(arch)
    state = train_small(one_batch, tmp_path, arch, *ONE_BATCH, *more)
    assert state["optimizer_history"][-1]["num_updates"] == 3
    assert validation_loss(state) == pytest.approx(validation_loss(expected), abs=2e-3)  # kept to three digits
    for name, weight in expected["model"].items():
        torch.testing.assert_close(
            state["model"][name], weight, rtol=0, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("arch", ARCHS)
def test_bfloat16_trains_on_a_cpu(arch, runs, one_batch, tmp_path):
    _, expected = runs(arch)
    loss = validation_loss(train_small(one_batch, tmp_path, arch, *ONE_BATCH, "--bf16"))
    assert loss == pytest.approx(validation_loss(expected), rel=0.01)


@pytest.mark.parametrize("flags", [["--fp16", "--fp16-no-flatten-grads"], ["--memory-efficient-fp16"], ["--amp"]])
@pytest.mark.parametrize("arch", FEW)
def test_what_was_made_for_a_gpu_trains_on_a_cpu(arch, flags, runs, one_batch, tmp_path):
    """--amp switches itself off there."""
    _, expected = runs(arch)
    loss = validation_loss(train_small(one_batch, tmp_path, arch, *ONE_BATCH, *flags))
    assert loss == pytest.approx(validation_loss(expected), rel=0.01)


def assert_average(folder):
    """ema_3 = (ema_2 + w_3) / 2, for every weight; numbers of positions and fingerprints stay what they are."""
    before = torch.load(folder / "checkpoint2.pt")["extra_state"]["ema"]
    last = torch.load(folder / "checkpoint3.pt")
    mean = last["extra_state"]["ema"]
    assert mean.keys() == last["model"].keys()
    for name, weight in last["model"].items():
        if "version" in name or "_float_tensor" in name:
            assert torch.equal(mean[name], weight), name
        else:
            torch.testing.assert_close(mean[name], (before[name] + weight) / 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_moving_average_is_one(arch, runs):
    assert_average(runs(arch)[0])


@pytest.mark.parametrize("arch", FEW)
def test_the_moving_average_of_a_pre_norm_model_is_translated_with(arch, one_batch, tmp_path):
    """fairseq alone would lose the last layer norms of the average, and decay tied embeddings twice, without a word."""
    flags = ["--encoder-normalize-before", "--decoder-normalize-before", "--share-decoder-input-output-embed"]
    train_small(one_batch, tmp_path, arch, *ONE_BATCH, *AVERAGED, *flags)
    assert_average(tmp_path)
    checkpoint_utils.save_ema_as_checkpoint(str(tmp_path / "checkpoint3.pt"), str(tmp_path / "ema.pt"))
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "ema.pt")])
    mean = torch.load(tmp_path / "checkpoint3.pt")["extra_state"]["ema"]
    assert torch.equal(model.decoder.layer_norm.weight, mean["decoder.layer_norm.weight"])
    assert torch.equal(model.encoder.layer_norm.bias, mean["encoder.layer_norm.bias"])
    found = generate_small(one_batch, tmp_path / "ema.pt", tmp_path / "out", "--gen-subset", "valid", "--beam", "1")
    assert sorted(found) == list(range(13))


@pytest.mark.parametrize(
    "start",
    [
        ["--finetune-from-model"],
        [*"--reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler".split(), "--restore-file"],
    ],
    ids=lambda start: start[0],
)
@pytest.mark.parametrize("arch", FEW)
def test_a_new_run_starts_at_the_given_weights(arch, start, runs, one_batch, tmp_path):
    folder, expected = runs(arch)
    still = ["--batch-size", "13", "--lr", "0", "--max-update", "1"]
    state = train_small(one_batch, tmp_path, arch, *still, *start, str(folder / "checkpoint3.pt"))
    assert all(torch.equal(state["model"][name], weight) for name, weight in expected["model"].items())
    assert validation_loss(state) == validation_loss(expected)
    assert state["optimizer_history"][-1]["num_updates"] == 1 and state["extra_state"]["train_iterator"]["epoch"] == 2


@pytest.mark.parametrize("arch", FEW)
def test_training_stops_when_patience_ends(arch, one_batch, tmp_path):
    still = ["--batch-size", "13", "--lr", "0", "--max-epoch", "9", "--patience", "2"]
    train_small(one_batch, tmp_path, arch, *still)
    assert sorted(path.name for path in tmp_path.glob("checkpoint?.pt")) == [f"checkpoint{n}.pt" for n in (1, 2, 3)]


@pytest.mark.parametrize("arch", FEW)
def test_the_best_checkpoint_by_bleu_has_the_bleu_of_its_translations(arch, data_bin, tmp_path):
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_a": 0, "max_len_b": 12, "min_len": 10}']
    bleu += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    train_small(data_bin[0], tmp_path, arch, "--batch-size", "20", "--lr", "1e-2", "--max-update", "20", *bleu)
    best = torch.load(tmp_path / "checkpoint_best.pt")["extra_state"]["val_loss"]
    options = ["--gen-subset", "valid", "--beam", "2", "--min-len", "10", "--max-len-b", "12"]
    found = generate_small(data_bin[0], tmp_path / "checkpoint_best.pt", tmp_path / "out", *options)
    translations = [" ".join(found[number][0].tokens) for number in range(13)]
    references = (data_bin[1] / "valid.vi").read_text().splitlines()
    expected = sacrebleu.corpus_bleu(translations, [references], tokenize="none", force=True).score
    assert best == pytest.approx(expected, abs=0.02) and best > 0


@pytest.mark.parametrize("arch", FEW)
def test_validation_gives_the_loss_of_the_training(arch, runs, data_bin):
    folder, state = runs(arch)
    printed = validate_small(data_bin[0], folder / "checkpoint3.pt", "--batch-size", "5")
    assert float(printed["valid_loss"]) == pytest.approx(validation_loss(state), abs=2e-3)


def test_scoring_gives_the_bleu_of_the_generation(runs, data_bin, tmp_path, monkeypatch, capsys):
    folder, _ = runs("informer_mt")
    found = generate_small(data_bin[0], folder / "checkpoint3.pt", tmp_path / "out", "--gen-subset", "valid")
    generated = next((tmp_path / "out").glob("*.txt")).read_text().splitlines()[-1].partition("BLEU4")[2]
    (tmp_path / "sys").write_text("".join(" ".join(found[number][0].tokens) + "\n" for number in range(13)))
    monkeypatch.setattr("sys.argv", ["fairseq-score", "-s", str(tmp_path / "sys"), "-r", str(data_bin[1] / "valid.vi")])
    score.cli_main()
    assert generated != "" and capsys.readouterr().out.splitlines()[-1].partition("BLEU4")[2] == generated


@pytest.mark.parametrize("arch", ["informer_mt", "linformer_mt", "transformer"])
def test_a_model_trained_with_layerdrop_is_pruned_in_generation(arch, data_bin, one_batch, tmp_path):
    """--encoder-layers-to-keep of a checkpoint: the translations of a model of that layer alone."""
    train_small(one_batch, tmp_path, arch, *ONE_BATCH, "--encoder-layerdrop", "0.2", "--decoder-layerdrop", "0.2")
    keep = "{'encoder_layers_to_keep': '1', 'decoder_layers_to_keep': '0'}"
    options = ["--gen-subset", "valid", "--beam", "2"]
    pruned = generate_small(
        *(data_bin[0], tmp_path / "checkpoint_last.pt", tmp_path / "a", *options, "--model-overrides", keep)
    )
    state = torch.load(tmp_path / "checkpoint_last.pt")
    model = {
        name.replace("encoder.layers.1.", "encoder.layers.0."): weight
        for name, weight in state["model"].items()
        if "encoder.layers.0." not in name and "decoder.layers.1." not in name
    }
    state["model"], state["cfg"]["model"].encoder_layers, state["cfg"]["model"].decoder_layers = model, 1, 1
    torch.save(state, tmp_path / "one.pt")
    alone = generate_small(data_bin[0], tmp_path / "one.pt", tmp_path / "b", *options)
    assert {n: (x[0].tokens, x[0].score) for n, x in pruned.items()} == {
        n: (x[0].tokens, x[0].score) for n, x in alone.items()
    }
