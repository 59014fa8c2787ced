"""--init-from-transformer: the checkpoint's function is preserved, the rest is told."""

import argparse
import logging
import re

import pytest
import torch
from fairseq import checkpoint_utils

from informer_fairseq.warm_start import BECAME, FRESH, TAKEN, start_from_transformer
from tests.support.composition_references import randomize
from tests.support.models import PAPER_ARCHS, SMALL, batch, build, flags, stand_in_task
from tests.test_command_line import run_generate, run_train

SIZES = {name: value for name, value in SMALL.items() if not name.endswith("_length")} | {"dropout": 0.0}
BIG_SHAPED = {  # as transformer_vaswani_wmt_en_de_big: the feed-forward four times as wide, 16 heads
    **{f"{side}_embed_dim": 32 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": 128 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 16 for side in ("encoder", "decoder")},
}
SHAPES = {
    "small": {},
    "big-shaped": BIG_SHAPED,
    "pre-norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "all embeddings shared": {"share_all_embeddings": True},
    "output shared": {"share_decoder_input_output_embed": True},
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "normed embedding, gelu": {"layernorm_embedding": True, "activation_fn": "gelu"},
    "encoder and decoder of other widths": {"decoder_embed_dim": 24, "decoder_layers": 3},
}


def batches():
    return batch([20, 7, 3], 1, side="left", size=45), batch([9, 9, 9], 1, size=45)


def save_state(path, weights, **model_flags):
    """A checkpoint as fairseq writes it; ``model_flags``: the architecture and its sizes."""
    state = {
        "args": None,
        "cfg": {"model": flags(**model_flags), "task": {"_name": "translation"}},
        "model": weights,
        "optimizer_history": [
            {"criterion_name": "x", "optimizer_name": "y", "lr_scheduler_state": {}, "num_updates": 1}
        ],
        "last_optimizer_state": None,
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    torch.save(state, path)


def save_stock(path, joined=False, source_size=50, target_size=45, **overrides):
    """A stock Transformer away from its start, saved as fairseq saves it; returns the model."""
    sizes = {**SIZES, **overrides}
    stock = randomize(build("transformer", source_size, target_size, joined=joined, **sizes), 0.1).eval()
    save_state(path, stock.state_dict(), arch="transformer", **sizes)
    return stock


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "composition",
    [
        {},
        {"composition_rank": 40},
        {"head_composition_keep_output_projection": True},
        {"encoder_layer_composition": "linear", "decoder_layer_composition": "top"},
        {"head_composition": "linear"},
    ],
    ids=str,
)
def test_the_function_is_preserved(shape, composition, tmp_path):
    overrides, joined = SHAPES[shape], shape == "all embeddings shared"
    stock = save_stock(tmp_path / "stock.pt", joined, **overrides)
    given = {**SIZES, **overrides, **composition, "init_from_transformer": str(tmp_path / "stock.pt")}
    model = build("ni_transformer", joined=joined, **given).eval()
    source, target = batches()
    torch.testing.assert_close(model(source, None, target)[0], stock(source, None, target)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("composition", [{}, {"head_composition_keep_output_projection": True}], ids=str)
def test_one_step_moves_every_parameter(composition, tmp_path):
    save_stock(tmp_path / "stock.pt")
    model = build("ni_transformer", **SIZES, **composition, init_from_transformer=str(tmp_path / "stock.pt")).train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    source, target = batches()
    logits = model(source, None, target)[0]
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.roll(-1, 1).flatten()).backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        if "composition" in name or ".out_proj." in name:
            moved = parameter.ne(before[name]).float().mean().item()
            assert moved > 0.99, name  # every number of it, but for what rounding swallows
        elif ".k_proj.bias" not in name:  # a key's bias adds the same to all scores, so it has no gradient
            assert not torch.equal(parameter, before[name]), name


def test_the_flags_forget_the_file(tmp_path):
    """They are saved with every checkpoint of the new model, which must load without it."""
    save_stock(tmp_path / "stock.pt")
    args = flags("ni_transformer", **SIZES, init_from_transformer=str(tmp_path / "stock.pt"))
    from informer_fairseq.models.ni_transformer import NITransformerModel

    NITransformerModel.build_model(args, stand_in_task(50, 45))
    assert args.init_from_transformer is None and args.init_with_low_rank_approximation is False


def test_hydras_configuration_forgets_it_too(tmp_path):
    from omegaconf import OmegaConf

    from informer_fairseq.models.ni_transformer import NITransformerModel

    stock = save_stock(tmp_path / "stock.pt")
    cfg = OmegaConf.create({"_name": "ni_transformer", **SIZES, "init_from_transformer": str(tmp_path / "stock.pt")})
    OmegaConf.set_struct(cfg, True)
    model = NITransformerModel.build_model(cfg, stand_in_task(50, 45)).eval()
    assert cfg.init_from_transformer is None
    source, target = batches()
    torch.testing.assert_close(model(source, None, target)[0], stock(source, None, target)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_lower_rank_is_the_best_approximation(normalize, tmp_path):
    """No other split of rank r loses less of W_O; the loss shrinks with the rank and is gone at full width."""
    norms = {"encoder_normalize_before": normalize, "decoder_normalize_before": normalize}
    stock = save_stock(tmp_path / "stock.pt", **norms)
    given = {**SIZES, **norms, "init_from_transformer": str(tmp_path / "stock.pt")}
    source, target = batches()
    expected = stock(source, None, target)[0]
    errors = []
    for rank in (4, 12, 15, 16):
        approximate = {"init_with_low_rank_approximation": rank < 16}
        model = build("ni_transformer", **given, **approximate, composition_rank=rank).eval()
        errors.append((model(source, None, target)[0] - expected).square().mean().item())
        attention, other = model.encoder.layers[0].self_attn, stock.encoder.layers[0].self_attn
        held = attention.head_composition.interaction.pool.weight @ attention.out_proj.weight[:rank]
        values = torch.linalg.svdvals(torch.cat([other.out_proj.weight, other.out_proj.bias.unsqueeze(1)], dim=1))
        lost = (held - other.out_proj.weight).square().sum().item()
        assert lost <= values[rank:].square().sum().item() + 1e-6
    assert errors[0] > errors[2] > errors[3] and errors[3] < 1e-10


@pytest.mark.parametrize("arch", PAPER_ARCHS)
def test_the_efficient_encoders_take_what_fits(arch, tmp_path, caplog):
    stock = save_stock(tmp_path / "stock.pt")
    caplog.set_level(logging.INFO)
    model = build(arch, **{**SMALL, "dropout": 0.0}, init_from_transformer=str(tmp_path / "stock.pt"))
    weights = stock.state_dict()
    fresh = set()
    for name, parameter in model.named_parameters():
        if name in weights:
            assert torch.equal(parameter, weights[name]), name
        else:
            fresh.add(re.sub(r"\d", "*", name))
    projection = "encoder.layers.*.self_attn.projection"
    organization = {f"encoder.layers.*.channel_mixer.{part}" for part in ("compress", "expand")}
    expected = {
        "linformer_mt": {f"{projection}.weight"},
        "conv_linformer_mt": {f"{projection}.weight", f"{projection}.bias"},
        "informer_mt": {f"{projection}.weight", f"{projection}.bias"}
        | {f"{name}.{kind}" for name in organization for kind in ("weight", "bias")},
    }
    assert fresh == expected[arch]
    log = next(record.message for record in caplog.records if record.message.startswith("started from"))
    assert "its function changes: --encoder-token-mixer" in log
    for name in fresh:
        assert re.search(rf"{re.escape(name)} +[\d,]+  {FRESH}", log), name
    assert re.search(rf"decoder.layers.\*.fc1.weight +768  {TAKEN}", log)  # 2 layers x 16 x 24


def test_the_table_counts_every_parameter_once(tmp_path):
    save_stock(tmp_path / "stock.pt", joined=True, share_all_embeddings=True)
    args = flags("ni_transformer", **SIZES, share_all_embeddings=True)
    model = build("ni_transformer", joined=True, **SIZES, share_all_embeddings=True)
    args.init_from_transformer = str(tmp_path / "stock.pt")
    parts = start_from_transformer(model, args, stand_in_task(50, 50, joined=True))
    assert sum(part.count for part in parts) == sum(parameter.numel() for parameter in model.parameters())
    assert {part.start for part in parts} == {TAKEN, f"{BECAME} output projection", f"{BECAME} top layer"}


@pytest.mark.parametrize(
    ("composition", "reason"),
    [
        ({"head_composition": "hierarchical"}, "--head-composition hierarchical, which holds no linear map"),
        ({"decoder_layer_composition": "hierarchical"}, "--decoder-layer-composition hierarchical, which holds no"),
        ({"composition_second_order_only": True}, "--head-composition bilinear, which holds no linear map"),
        ({"encoder_activation_fn": "gelu"}, "--encoder-activation-fn gelu instead of relu"),
    ],
    ids=str,
)
def test_it_is_told_where_the_function_changes(composition, reason, tmp_path, caplog):
    stock = save_stock(tmp_path / "stock.pt")
    caplog.set_level(logging.INFO)
    model = build("ni_transformer", **SIZES, **composition, init_from_transformer=str(tmp_path / "stock.pt"))
    assert any(reason in record.message for record in caplog.records)
    assert torch.equal(model.encoder.embed_tokens.weight, stock.encoder.embed_tokens.weight)


@pytest.mark.parametrize(
    ("other", "given", "message"),
    [
        ({"encoder_layers": 3}, {}, "--encoder-layers is 3 in --init-from-transformer .*stock.pt and 2 here"),
        ({"decoder_embed_dim": 32}, {}, "--decoder-embed-dim is 32 in .* and 16 here"),
        ({"encoder_attention_heads": 4}, {}, "--encoder-attention-heads is 4 in .* and 2 here"),
        ({"decoder_ffn_embed_dim": 32}, {}, "--decoder-ffn-embed-dim is 32 in .* and 24 here"),
        ({"decoder_normalize_before": True}, {}, "--decoder-normalize-before is True in .* and False here"),
        ({"activation_fn": "gelu"}, {}, "--activation-fn is gelu in .* and relu here"),
        ({}, {"share_decoder_input_output_embed": True}, "has an output projection of its own"),
        ({"source_size": 60}, {}, "stock.pt: the checkpoint's source dictionary has 60 types, the data's has 50"),
        ({"target_size": 46}, {}, "stock.pt: the checkpoint's target dictionary has 46 types, the data's has 45"),
        (
            {"encoder_learned_pos": True, "max_source_positions": 64},
            {"encoder_learned_pos": True},
            "--max-source-positions is 64 in .* and 1024 here",
        ),
    ],
    ids=str,
)
def test_another_size_or_dictionary_is_refused_in_one_line(other, given, message, tmp_path):
    save_stock(tmp_path / "stock.pt", **other)
    with pytest.raises(ValueError, match=message) as refusal:
        build("ni_transformer", **SIZES, **given, init_from_transformer=str(tmp_path / "stock.pt"))
    assert "\n" not in str(refusal.value)


def test_two_embeddings_do_not_fit_one(tmp_path):
    save_stock(tmp_path / "stock.pt", joined=True, share_decoder_input_output_embed=True)
    with pytest.raises(ValueError, match="has two embeddings, and --share-all-embeddings one"):
        build(
            *("ni_transformer",),
            **{**SIZES, "joined": True, "share_all_embeddings": True},
            init_from_transformer=str(tmp_path / "stock.pt"),
        )


def test_other_files_are_refused_in_one_line(tmp_path):
    def start(path):
        build("ni_transformer", **SIZES, init_from_transformer=str(path))

    with pytest.raises(
        ValueError, match="--init-from-transformer .*missing.pt is no file that exists: .*drop the flag"
    ):
        start(tmp_path / "missing.pt")
    with pytest.raises(ValueError, match="--init-from-transformer .* is a folder: give a checkpoint"):
        start(tmp_path)
    (tmp_path / "text.pt").write_text("no checkpoint")
    with pytest.raises(ValueError, match="text.pt is not a readable checkpoint"):
        start(tmp_path / "text.pt")
    own = build("ni_transformer", **SIZES)
    save_state(tmp_path / "own.pt", own.state_dict(), arch="ni_transformer", **SIZES)
    with pytest.raises(ValueError, match="own.pt is a checkpoint of ni_transformer, not of fairseq's transformer"):
        start(tmp_path / "own.pt")
    torch.save({"model": own.state_dict()}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="weights.pt is not a fairseq checkpoint .*give one with the model"):
        start(tmp_path / "weights.pt")
    save_stock(tmp_path / "cut.pt")
    state = torch.load(tmp_path / "cut.pt", weights_only=False)
    del state["model"]["encoder.layers.1.fc1.weight"]
    torch.save(state, tmp_path / "cut.pt")
    with pytest.raises(ValueError, match="cut.pt holds weights that do not fit its own flags: .*fc1.weight"):
        start(tmp_path / "cut.pt")


def test_flags_in_the_old_place_are_read(tmp_path):
    """fairseq up to 0.10 saved its flags as ``args``."""
    stock = save_stock(tmp_path / "stock.pt")
    state = torch.load(tmp_path / "stock.pt", weights_only=False)
    args = argparse.Namespace(**vars(state["cfg"]["model"]), task="translation", data="gone", no_progress_bar=True)
    args.source_lang, args.target_lang = "en", "vi"
    torch.save({**state, "args": args, "cfg": None}, tmp_path / "old.pt")
    model = build("ni_transformer", **SIZES, init_from_transformer=str(tmp_path / "old.pt")).eval()
    source, target = batches()
    torch.testing.assert_close(model(source, None, target)[0], stock(source, None, target)[0], rtol=0, atol=1e-5)


# ------------------------------------------------------------------------------------------- with fairseq's commands
STOCK = "--encoder-ffn-embed-dim 64 --decoder-ffn-embed-dim 64 --encoder-attention-heads 4 --decoder-attention-heads 4"


@pytest.fixture(
    scope="module", params=["", "--encoder-normalize-before --decoder-normalize-before"], ids=["post", "pre"]
)
def stock_run(request, data_bin, tmp_path_factory):
    """(folder of a stock Transformer's two epochs, the flags both models share)."""
    folder = tmp_path_factory.mktemp("stock")
    shared = [*STOCK.split(), *request.param.split()]
    run_train(data_bin, folder, "transformer", *shared, "--max-epoch", "2")
    return folder, shared


def validation_losses(caplog):
    found = [
        re.search(r"valid on 'valid' subset \| loss (\S+)|\"valid_loss\": \"(\S+?)\"", r.message)
        for r in caplog.records
    ]
    return [match.group(1) or match.group(2) for match in found if match]


def test_the_first_validation_is_the_checkpoints(stock_run, data_bin, tmp_path, caplog):
    """With a learning rate of zero the first epoch ends where it began."""
    folder, shared = stock_run
    state = torch.load(folder / "checkpoint2.pt")
    expected = state["extra_state"]["val_loss"]
    start = ["--init-from-transformer", str(folder / "checkpoint2.pt")]
    run_train(data_bin, tmp_path, "ni_transformer", *shared, *start, "--max-epoch", "1", "--lr", "0")
    mine = torch.load(tmp_path / "checkpoint1.pt")
    assert mine["extra_state"]["val_loss"] == pytest.approx(expected, abs=1e-4)
    assert mine["cfg"]["model"].init_from_transformer is None

    translations = [
        run_generate(data_bin, path, "--batch-size", "8", "--beam", "3", output=tmp_path / name)
        for name, path in (("stock", folder / "checkpoint2.pt"), ("ni", tmp_path / "checkpoint1.pt"))
    ]
    assert {n: text for n, (text, _) in translations[1].items()} == {
        n: text for n, (text, _) in translations[0].items()
    }


def test_a_warm_started_run_goes_on_without_the_file(stock_run, data_bin, tmp_path):
    folder, shared = stock_run
    copy = tmp_path / "stock.pt"
    copy.write_bytes((folder / "checkpoint2.pt").read_bytes())
    run = [data_bin, tmp_path / "run", "ni_transformer", *shared]
    run_train(*run, "--init-from-transformer", str(copy), "--max-epoch", "1")
    copy.unlink()
    run_train(*run, "--max-epoch", "2")
    assert len(run_generate(data_bin, tmp_path / "run" / "checkpoint2.pt", output=tmp_path / "out")) == 23


def test_other_dictionaries_of_equal_size_are_refused(stock_run, data_bin, tmp_path):
    folder, shared = stock_run
    other = tmp_path / "bin"
    other.mkdir()
    for file in data_bin[0].iterdir():
        if file.name != "dict.vi.txt":
            (other / file.name).write_bytes(file.read_bytes())
    lines = (data_bin[0] / "dict.vi.txt").read_text().splitlines()
    (other / "dict.vi.txt").write_text("\n".join(reversed(lines)) + "\n")
    start = ["--init-from-transformer", str(folder / "checkpoint2.pt"), "--max-epoch", "1"]
    with pytest.raises(ValueError, match="the target dictionary of --init-from-transformer .* has other words"):
        run_train((other, None), tmp_path / "run", "ni_transformer", *shared, *start)


def test_words_behind_a_relative_path_only_warn(stock_run, data_bin, tmp_path, monkeypatch, caplog):
    """The checkpoint's data-bin may have been another one, relative to another folder."""
    folder, shared = stock_run
    state = torch.load(folder / "checkpoint2.pt")
    state["cfg"]["task"].update(data="bin", source_lang="en", target_lang="vi")
    torch.save(state, tmp_path / "relative.pt")
    other = tmp_path / "bin"
    other.mkdir()
    lines = {name: (data_bin[0] / name).read_text().splitlines() for name in ("dict.en.txt", "dict.vi.txt")}
    (other / "dict.en.txt").write_text("\n".join(lines["dict.en.txt"]) + "\n")
    (other / "dict.vi.txt").write_text("\n".join(reversed(lines["dict.vi.txt"])) + "\n")
    monkeypatch.chdir(tmp_path)
    run_train(
        *(data_bin, tmp_path / "run", "ni_transformer", *shared, "--max-update", "1", "--disable-validation"),
        *("--init-from-transformer", str(tmp_path / "relative.pt")),
    )
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert any("bin/dict.vi.txt, if it is the target dictionary of" in message for message in warned)


def test_a_checkpoint_read_by_fairseq_keeps_its_flags(stock_run):
    """Reading the Transformer for a warm start must not change what fairseq reads later."""
    folder, _ = stock_run
    state = checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint2.pt"))
    assert state["cfg"]["model"].arch == "transformer"
