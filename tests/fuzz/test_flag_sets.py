"""A few of the thousands of flag sets that ``make fuzz`` tries, and that a fault would be found and told."""

import logging
import re

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from informer_fairseq.channel_mixers.information_organization import InformationOrganization
from informer_fairseq.composition_config import check_composition_flags
from informer_fairseq.errors import InputError
from tests.fuzz import run
from tests.fuzz.flag_sets import ARCHS, OURS, FlagSet, draw
from tests.fuzz.trial import ARGPARSE, AS_STOCK, FAIRSEQ, FAULT, RAN, try_out, write_dictionaries
from tests.fuzz.trial import OURS as REFUSED
from tests.support.models import flags

TINY = {
    f"--{side}-{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("layers", "1"), ("embed-dim", "8"), ("ffn-embed-dim", "8"), ("attention-heads", "2"))
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dictionaries")
    write_dictionaries(folder)
    return folder


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.ERROR)


def tiny(arch, changes=None, **more):
    """A sound flag set of small sizes."""
    lengths = {} if arch == "ni_transformer" else {"--encoder-fixed-length": "16"}
    return FlagSet("hand-made", arch, {**TINY, **lengths, **(changes or {})}, **more)


def test_many_flag_sets_run_or_are_refused_in_one_line(capsys):
    assert run.main(["--count", "120", "--seed", "77", "--processes", "1"]) == 0, capsys.readouterr().out
    logging.disable(logging.NOTSET)
    counts = {line[9:]: int(line[:7]) for line in capsys.readouterr().out.splitlines()[-6:]}
    assert sum(counts.values()) == 120
    assert counts[FAULT] == 0 and counts[RAN] >= 60 and counts[REFUSED] >= 5 and counts[ARGPARSE] >= 5


def test_a_number_gives_one_flag_set():
    assert [str(draw(1, number)) for number in range(50)] == [str(draw(1, number)) for number in range(50)]
    assert len({" ".join(draw(1, number).words()) for number in range(300)}) == 300
    assert {draw(1, number).arch for number in range(300)} == set(ARCHS)
    sound = [draw(1, number).sound for number in range(300)]
    assert 100 < sum(sound) < 200


def test_stock_gets_the_flags_that_it_has():
    drawn = tiny("informer_mt", {"--encoder-pool-size": "2", "--dropout": "0.1"})
    assert OURS.isdisjoint(word.split("=")[0] for word in drawn.words(stock=True))
    assert drawn.words(stock=True)[:2] == ["--arch", "transformer"]
    assert "--dropout=0.1" in drawn.words(stock=True)


@pytest.mark.parametrize(
    "changes, kind, words",
    [
        ({"--encoder-pool-size": "3"}, REFUSED, "--encoder-pool-size 3"),
        ({"--dropout": "x"}, ARGPARSE, "argument --dropout: invalid"),
        ({"--share-all-embeddings": None}, FAIRSEQ, "joined dictionary"),
        ({"--encoder-layers-to-keep": "0"}, AS_STOCK, "'list' object has no attribute 'split'"),
    ],
)
def test_refusals_are_told_apart(folder, changes, kind, words):
    outcome = try_out(tiny("informer_mt", changes, sound=False), folder)
    assert outcome.kind == kind and words in outcome.detail
    assert try_out(tiny("informer_mt", changes), folder).kind == FAULT  # what is sound must run


@pytest.mark.parametrize(
    "break_it, told",
    [
        (lambda io, x, mask: io.whole(x, mask) * float("nan"), "not finite"),
        (lambda io, x, mask: io.whole(x, mask).detach(), "no gradient: .*channel_mixer"),
        (lambda io, x, mask: io.whole(x + x.mean(dim=1, keepdim=True), mask), "in a batch and alone: off by"),
        (lambda io, x, mask: {}["no such key"], "KeyError"),
    ],
    ids=["not finite", "no gradient", "depends on the batch", "traceback"],
)
def test_a_broken_model_is_a_fault(folder, monkeypatch, break_it, told):
    """One that leaves out no kind of check: the same flags run where nothing is broken."""
    drawn = tiny("informer_mt", {"--dropout": "0"}, lengths=((5, 3), (2, 4)), beam=2, reload=True)
    assert try_out(drawn, folder).kind == RAN
    monkeypatch.setattr(InformationOrganization, "whole", InformationOrganization.forward, raising=False)
    monkeypatch.setattr(InformationOrganization, "forward", lambda io, x, mask=None: break_it(io, x, mask))
    outcome = try_out(drawn, folder)
    assert outcome.kind == FAULT
    assert re.search(told, outcome.detail)


def test_a_trial_ends(folder, monkeypatch):
    monkeypatch.setattr("tests.fuzz.trial.SECONDS", 1)

    def wait(*_):
        while True:
            torch.zeros(1)

    monkeypatch.setattr(ARCH_MODEL_REGISTRY["informer_mt"], "build_model", wait)
    assert try_out(tiny("informer_mt"), folder).detail == "sound flags, but fault: no end after 1 s"


def test_a_hierarchy_without_hidden_units_is_refused():
    """Found by this: PyTorch builds linear maps of width 0, and the tree's own check came as a traceback."""
    given = dict(decoder_ffn_embed_dim=0, encoder_ffn_embed_dim=0)
    for side in ("encoder", "decoder"):
        with pytest.raises(InputError, match=f"--{side}-layer-composition hierarchical .* --{side}-ffn-embed-dim"):
            check_composition_flags(flags("linformer_mt", **given, **{f"{side}_layer_composition": "hierarchical"}))
