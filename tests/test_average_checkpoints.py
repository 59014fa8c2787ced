import argparse

import pytest
import torch

from informer_fairseq import average_checkpoints
from informer_fairseq.errors import InputError
from tests.support.models import build_small


def checkpoint(path, model, **extra):
    state = {
        "cfg": {"model": argparse.Namespace(arch="x")},
        "model": model,
        "last_optimizer_state": {"step": 3},
        **extra,
    }
    torch.save(state, path)
    return str(path)


def test_the_mean_of_every_weight(tmp_path):
    models = [build_small("informer_mt") for _ in range(3)]
    for number, model in enumerate(models):
        torch.nn.init.constant_(model.encoder.embed_tokens.weight, number)
    paths = [checkpoint(tmp_path / f"{n}.pt", model.state_dict()) for n, model in enumerate(models)]
    average_checkpoints.main(["--inputs", *paths, "--output", str(tmp_path / "sub" / "mean.pt")])
    mean = torch.load(tmp_path / "sub" / "mean.pt")
    assert torch.equal(mean["model"]["encoder.embed_tokens.weight"], torch.ones(50, 16))
    name = "decoder.layers.0.fc1.weight"
    expected = sum(model.state_dict()[name].double() for model in models) / 3
    assert torch.equal(mean["model"][name], expected.float())
    assert mean["model"]["encoder.length_version"].tolist() == [40, 8, 2]
    assert mean["cfg"]["model"].arch == "x" and mean["last_optimizer_state"] is None
    build_small("informer_mt").load_state_dict(mean["model"], strict=True)


def scale(model, **changes):
    """The state of a model with layer compositions, without a scale or with another one."""
    name = "encoder.layer_composition.concatenation.scale_version"
    state = dict(model.state_dict())
    if not changes:
        del state[name]
    else:
        state[name] = torch.tensor(changes["s"])
    return name, state


@pytest.mark.parametrize("old_first", [True, False])
def test_a_scale_that_is_missing_is_one(old_first, tmp_path):
    """As in a run that was resumed with the code that knows scales."""
    model = build_small("ni_transformer")
    states = [scale(model)[1], scale(model, s=1.0)[1]]
    paths = [checkpoint(tmp_path / f"{n}.pt", state) for n, state in enumerate(states if old_first else states[::-1])]
    mean = average_checkpoints.average(paths)["model"]
    assert mean.keys() == states[1].keys() and all(torch.equal(mean[name], states[1][name]) for name in mean)


def test_other_scales_are_refused(tmp_path):
    model = build_small("ni_transformer")
    name, other = scale(model, s=0.125)
    for number, state in enumerate((model.state_dict(), other, scale(model)[1])):
        checkpoint(tmp_path / f"{number}.pt", state)
    for second, value in ((1, 0.125), (2, 1.0)):
        with pytest.raises(InputError, match=f"{name} is {value} in .*{second}.pt but 0.5 in .*0.pt"):
            average_checkpoints.average([str(tmp_path / "0.pt"), str(tmp_path / f"{second}.pt")])


def test_shared_weights_are_stored_once(tmp_path):
    paths = [checkpoint(tmp_path / f"{n}.pt", build_small("conv_linformer_mt").state_dict()) for n in range(2)]
    model = average_checkpoints.average(paths)["model"]
    shared = [value for name, value in model.items() if name.endswith("self_attn.projection.weight")]
    assert len(shared) == 2 and shared[0].data_ptr() == shared[1].data_ptr()


def test_one_checkpoint_is_its_own_mean(tmp_path):
    model = {"w": torch.tensor([1.5, -2.25]), "half": torch.tensor([0.1], dtype=torch.float16)}
    mean = average_checkpoints.average([checkpoint(tmp_path / "a.pt", model)])["model"]
    assert torch.equal(mean["w"], model["w"]) and torch.equal(mean["half"], model["half"])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"w": torch.ones(3), "n": torch.tensor(1)}, "does not match .*: w and 0 more"),
        ({"w": torch.ones(2)}, "does not match .*: n and 0 more"),
        ({"w": torch.ones(2), "n": torch.tensor(2)}, "n is 2 in .* but 1 in"),
    ],
)
def test_what_does_not_match_is_refused_and_nothing_written(tmp_path, capsys, second, message):
    first = checkpoint(tmp_path / "a.pt", {"w": torch.ones(2), "n": torch.tensor(1)})
    other = checkpoint(tmp_path / "b.pt", second)
    with pytest.raises(SystemExit) as caught:
        average_checkpoints.main(["--inputs", first, other, "--output", str(tmp_path / "out.pt")])
    assert caught.value.code == 2
    error = capsys.readouterr().err.strip()
    import re

    assert re.search(message, error) and "\n" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt"]


def test_a_missing_file_and_a_file_without_a_model_are_refused(tmp_path, capsys):
    torch.save({"weights": 1}, tmp_path / "a.pt")
    for path, message in ((tmp_path / "none.pt", "no such checkpoint"), (tmp_path / "a.pt", "has no 'model' entry")):
        with pytest.raises(SystemExit):
            average_checkpoints.main(["--inputs", str(path), "--output", str(tmp_path / "out.pt")])
        assert message in capsys.readouterr().err
