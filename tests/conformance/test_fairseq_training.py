"""What fairseq's own test-suite asks of a translation model in training, of every architecture and the stock one.

The training set is one batch, so that an update is an epoch and what changes the batch must not change the weights.
"""

import shutil

import pytest
import sacrebleu
import torch
from fairseq_cli import score

from tests.support.commands import generate_small, logged, train_small, validate_small
from tests.support.models import ALL_ARCHS

ARCHS = [*ALL_ARCHS, "transformer"]
FEW = ["informer_mt", "ni_transformer", "transformer"]  # where a command has nothing to do with the layers
ONE_BATCH = ["--train-subset", "valid", "--batch-size", "13", "--max-update", "3"]


@pytest.fixture(scope="module")
def runs(data_bin, tmp_path_factory):
    """Architecture -> (folder of checkpoints 1 to 3, the last one's content); with a moving average of the weights."""
    made = {}

    def run(arch):
        if arch not in made:
            folder = tmp_path_factory.mktemp(arch)
            made[arch] = folder, train_small(data_bin[0], folder, arch, *ONE_BATCH, "--store-ema", "--ema-decay", "0.5")
        return made[arch]

    return run


def validation_loss(state):
    return state["extra_state"]["val_loss"]


@pytest.mark.parametrize(
    "more",
    [
        ["--batch-size", "7", "--update-freq", "2"],
        ["--num-batch-buckets", "2"],
        ["--left-pad-source"],
        ["--left-pad-target"],
        ["--checkpoint-activations"],
        ["--offload-activations"],
        ["--batch-size-valid", "1"],
        ["--max-tokens-valid", "40"],
    ],
    ids=lambda more: more[0],
)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_same_sentences_give_the_same_weights(arch, more, runs, data_bin, tmp_path):
    """Over half batches, in buckets, padded on the other side, recomputed, in other batches of validation."""
    _, expected = runs(arch)
    state = train_small(data_bin[0], tmp_path, arch, *ONE_BATCH, *more)
    assert state["optimizer_history"][-1]["num_updates"] == 3
    assert validation_loss(state) == pytest.approx(validation_loss(expected), abs=2e-3)  # kept to three digits
    for name, weight in expected["model"].items():
        torch.testing.assert_close(
            state["model"][name], weight, rtol=0, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("precision", [["--bf16"], ["--fp16", "--fp16-no-flatten-grads"], ["--memory-efficient-bf16"]])
@pytest.mark.parametrize("arch", ARCHS)
def test_half_precision_trains_on_a_cpu(arch, precision, runs, data_bin, tmp_path):
    _, expected = runs(arch)
    loss = validation_loss(train_small(data_bin[0], tmp_path, arch, *ONE_BATCH, *precision))
    assert loss == pytest.approx(validation_loss(expected), rel=0.01)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_moving_average_is_one(arch, runs):
    """ema_3 = (ema_2 + w_3) / 2, for every weight; numbers of positions and fingerprints stay what they are."""
    folder, last = runs(arch)
    before = torch.load(folder / "checkpoint2.pt")["extra_state"]["ema"]
    mean = last["extra_state"]["ema"]
    for name, weight in last["model"].items():
        if "version" in name or not weight.is_floating_point():
            assert torch.equal(mean[name], weight)
        else:
            torch.testing.assert_close(mean[name], (before[name] + weight) / 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("arch", FEW)
def test_the_moving_average_is_translated_with(arch, runs, data_bin, tmp_path):
    from fairseq import checkpoint_utils

    folder, _ = runs(arch)
    checkpoint_utils.save_ema_as_checkpoint(str(folder / "checkpoint3.pt"), str(tmp_path / "ema.pt"))
    found = generate_small(data_bin[0], tmp_path / "ema.pt", tmp_path, "--gen-subset", "valid", "--beam", "1")
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
def test_a_new_run_starts_at_the_given_weights(arch, start, runs, data_bin, tmp_path):
    folder, expected = runs(arch)
    still = ["--train-subset", "valid", "--batch-size", "13", "--lr", "0", "--max-update", "1"]
    state = train_small(data_bin[0], tmp_path, arch, *still, *start, str(folder / "checkpoint3.pt"))
    assert all(torch.equal(state["model"][name], weight) for name, weight in expected["model"].items())
    assert validation_loss(state) == validation_loss(expected)
    assert state["optimizer_history"][-1]["num_updates"] == 1 and state["extra_state"]["train_iterator"]["epoch"] == 2


@pytest.mark.parametrize("arch", FEW)
def test_training_stops_when_patience_ends(arch, data_bin, tmp_path):
    still = ["--train-subset", "valid", "--batch-size", "13", "--lr", "0", "--max-epoch", "9", "--patience", "2"]
    train_small(data_bin[0], tmp_path, arch, *still)
    assert sorted(path.name for path in tmp_path.glob("checkpoint?.pt")) == [f"checkpoint{n}.pt" for n in (1, 2, 3)]


@pytest.mark.parametrize("arch", FEW)
def test_the_best_checkpoint_by_bleu_has_the_bleu_of_its_translations(arch, data_bin, tmp_path):
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_a": 0, "max_len_b": 8, "min_len": 2}']
    bleu += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    train_small(data_bin[0], tmp_path, arch, "--batch-size", "20", "--lr", "1e-2", "--max-update", "20", *bleu)
    best = torch.load(tmp_path / "checkpoint_best.pt")["extra_state"]["val_loss"]
    options = ["--gen-subset", "valid", "--beam", "2"]
    found = generate_small(data_bin[0], tmp_path / "checkpoint_best.pt", tmp_path / "out", *options)
    translations = [" ".join(found[number][0].tokens) for number in range(13)]
    references = (data_bin[1] / "valid.vi").read_text().splitlines()
    expected = sacrebleu.corpus_bleu(translations, [references], tokenize="none", force=True).score
    assert best == pytest.approx(expected, abs=0.02) and best > 0


@pytest.mark.parametrize("arch", FEW)
def test_validation_gives_the_loss_of_the_training(arch, runs, data_bin, caplog):
    folder, state = runs(arch)
    with caplog.at_level("INFO"):
        validate_small(data_bin[0], folder / "checkpoint3.pt", "--batch-size", "5")
    (printed,) = logged(caplog, "valid")
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
def test_a_model_trained_with_layerdrop_is_pruned_in_generation(arch, data_bin, tmp_path):
    """--encoder-layers-to-keep of a checkpoint: the translations of a model of that layer alone."""
    train_small(data_bin[0], tmp_path, arch, *ONE_BATCH, "--encoder-layerdrop", "0.2", "--decoder-layerdrop", "0.2")
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


@pytest.mark.parametrize("flags", [["--amp"], ["--fp16", "--memory-efficient-fp16"]], ids=lambda flags: flags[-1])
@pytest.mark.parametrize("arch", FEW)
def test_what_needs_a_gpu_does_as_with_the_stock_model(arch, flags, runs, data_bin, tmp_path):
    """On a CPU --amp switches itself off; memory-efficient float16 trains."""
    _, expected = runs(arch)
    loss = validation_loss(train_small(data_bin[0], tmp_path, arch, *ONE_BATCH, *flags))
    assert loss == pytest.approx(validation_loss(expected), rel=0.01)
    shutil.rmtree(tmp_path)
