"""params: counts by hand, the papers' differences, checkpoints, and flags that do not fit."""

import json

import pytest

from informer_fairseq.errors import InputError
from informer_fairseq.tools import model_costs
from informer_fairseq.tools.main import main
from tests.support.models import build

TYPES = ("--source-types", "50", "--target-types", "45")
ROUNDING = 1e-9


def rows_of(tmp_path, *words):
    """The rows and differences that the command writes."""
    assert main(["params", *words, "--json", str(tmp_path / "p.json")]) == 0
    written = json.loads((tmp_path / "p.json").read_text("utf-8"))
    return written["models"], written["differences"]


@pytest.mark.parametrize("arch", ["transformer", "informer_mt_tiny", "linformer_mt_tiny", "ni_transformer_tiny"])
def test_parts_sum_to_the_total(arch):
    sizes = {} if arch != "transformer" else {"encoder_embed_dim": 64, "decoder_embed_dim": 64}
    model = build(arch, **sizes)
    counts = model_costs.count_parameters(model)
    assert counts["total"] == counts["trainable"] == sum(p.numel() for p in model.parameters())
    assert sum(counts[part] for part in model_costs.PARTS) == counts["total"]
    assert counts["encoder, other"] == 0


def test_counts_by_hand_of_the_tiny_informer(tmp_path):
    [row], _ = rows_of(tmp_path, "--arch", "informer_mt_tiny", *TYPES)
    c, layers, n = 128, 4, 200
    norm, square = 2 * c, c * c + c
    assert row["embeddings"] == (50 + 45) * c
    assert row["encoder attention"] == layers * (4 * square + norm)
    assert row["projection"] == 25 * c * c + c  # one for all layers
    assert row["channel mixer"] == layers * (2 * (n * n * 4 + n) + norm)
    assert row["decoder"] == layers * (8 * square + (256 * c + 256) + (256 * c + c) + 3 * norm)
    assert row["output"] == 45 * c
    assert row["composition"] == 0


def test_shared_weights_count_once(tmp_path):
    [row], _ = rows_of(
        tmp_path, "--arch", "informer_mt_tiny", "--share-all-embeddings", "--source-types=60", "--target-types=60"
    )
    assert (row["embeddings"], row["output"]) == (60 * 128, 0)


def test_sharing_of_projections_is_passed_on_to_the_model(tmp_path):
    one = 8 * 200
    for sharing, count in (("layer", 1), ("kv", 4), ("none", 8)):
        [row], _ = rows_of(tmp_path, "--arch", "linformer_mt_tiny", "--encoder-projection-sharing", sharing, *TYPES)
        assert row["projection"] == count * one


def test_composition_holds_heads_and_layers_of_both_sides(tmp_path):
    [row], _ = rows_of(tmp_path, "--arch", "ni_transformer_tiny", *TYPES)
    c, rank, layers, attentions = 128, 128, 4, 3 * 4
    heads = attentions * (c * 2 * rank + 2 * rank + rank * c)
    tops = 2 * (layers * c * 2 * rank + 2 * rank + rank * c)
    assert row["composition"] == heads + tops


def test_table_6_difference_at_the_papers_size(tmp_path, capsys):
    _, [difference] = rows_of(tmp_path, "--arch", "conv_linformer_mt", "informer_mt")
    assert difference["total"] == difference["channel mixer"] == -8_755_872
    assert "-8,755,872" in capsys.readouterr().out


def test_multiply_adds_by_hand(tmp_path):
    rows, _ = rows_of(tmp_path, "--arch", "transformer", "linformer_mt", "--encoder-layers=1", "--length=20", *TYPES)
    c, length, r = 512, 20, 8
    counts = {row["model"]: row["multiply-adds per source token"] for row in rows}
    assert counts["transformer"] == pytest.approx(12 * c**2 + 2 * length * c, rel=ROUNDING)
    linformer = 10 * c**2 + 2 * r * c**2 / length + 3 * r * c
    assert counts["linformer_mt"] == pytest.approx(linformer, rel=ROUNDING)


def test_flags_of_one_architecture_are_quoted_with_it(tmp_path):
    rows, differences = rows_of(
        tmp_path, "--arch", "linformer_mt_tiny", "linformer_mt_tiny --encoder-fixed-length 400", *TYPES
    )
    assert [row["projection"] for row in rows] == [8 * 200, 8 * 400]
    assert differences[0]["total"] == 8 * 200


def test_checkpoint_counts_as_its_architecture(tmp_path):
    import argparse

    import torch

    flags = argparse.Namespace(arch="informer_mt_tiny", share_all_embeddings=False)
    model = build("informer_mt_tiny")
    state = {"args": None, "cfg": {"model": flags, "task": {"_name": "translation"}}, "model": model.state_dict()}
    torch.save(state, tmp_path / "c.pt")
    [row], _ = rows_of(tmp_path, "--checkpoint", str(tmp_path / "c.pt"))
    [expected], _ = rows_of(tmp_path, "--arch", "informer_mt_tiny", *TYPES)
    assert {**row, "model": ""} == {**expected, "model": ""}


@pytest.mark.parametrize(
    "words, told",
    [
        (["--arch", "informr_mt"], "did you mean informer_mt"),
        (
            ["--arch", "transformer", "--encoder-projection-sharing", "kv"],
            "unrecognized arguments: --encoder-projection",
        ),
        (["--arch", "informer_mt_tiny", "--length", "201"], "--length 201 is not in 1 to 200"),
        (["--arch", "informer_mt_tiny", "--encoder-fixed-length", "201"], "201"),
        (["--arch", "informer_mt_tiny", "--share-all-embeddings"], "one joint dictionary"),
        (["--arch", "informer_mt_tiny", "--source-types", "2"], "2 types are fewer"),
        (["--checkpoint", "none.pt"], "no such checkpoint: none.pt"),
        (["--checkpoint", "none.pt", "--source-types", "9"], "--source-types has no use with --checkpoint"),
    ],
)
def test_errors_are_one_line(words, told, tmp_path, capsys):
    assert main(["params", *words, "--json", str(tmp_path / "p.json")]) == 2
    message = capsys.readouterr().err.strip()
    assert told in message and "\n" not in message
    assert not (tmp_path / "p.json").exists()


def test_checkpoint_of_another_kind_is_refused(tmp_path):
    import torch

    torch.save({"model": {}}, tmp_path / "c.pt")
    with pytest.raises(InputError, match="no fairseq checkpoint"):
        model_costs.build_from_checkpoint(str(tmp_path / "c.pt"))
