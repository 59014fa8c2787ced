from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models.lstm import LSTMDecoder, LSTMEncoder, LSTMModel

from informer_fairseq.criterions.chunked_label_smoothed_cross_entropy import ChunkedLabelSmoothedCrossEntropyCriterion
from tests.support.models import batch, build_small, dictionary
from tests.support.systems import softmax_of_own_type
from tests.test_command_line import run_train

TASK = SimpleNamespace(target_dictionary=dictionary(45, "v"))


def sample():
    target = batch([9, 4, 6], 1, size=45)
    previous = target.roll(1, dims=1)
    previous[:, 0] = 2
    return {
        "net_input": {
            "src_tokens": batch([20, 7, 3], 1, side="left"),
            "src_lengths": None,
            "prev_output_tokens": previous,
        },
        "target": target,
        "ntokens": 19,
    }


def run(kind, model, *, reduce=True, **options):
    """Loss, sample size, log, and the gradients by name."""
    criterion = kind(TASK, options.pop("sentence_avg", False), 0.1, **options)
    model.zero_grad()
    with softmax_of_own_type():
        loss, size, log = criterion(model, sample(), reduce=reduce)
        loss.sum().backward()
    return loss, size, log, {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    "options",
    [{}, {"report_accuracy": True}, {"ignore_prefix_size": 2, "report_accuracy": True}, {"sentence_avg": True}],
    ids=str,
)
@pytest.mark.parametrize("tying", [{}, {"share_decoder_input_output_embed": True}], ids=str)
@pytest.mark.parametrize("arch", ["transformer", "informer_mt", "ni_transformer"])
def test_it_is_fairseqs_criterion(arch, tying, options):
    model = build_small(arch, **tying).double()
    expected, size, expected_log, expected_gradients = run(LabelSmoothedCrossEntropyCriterion, model, **options)
    loss, own_size, log, gradients = run(ChunkedLabelSmoothedCrossEntropyCriterion, model, loss_chunk_rows=4, **options)
    assert own_size == size and log.keys() == expected_log.keys()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    for name, value in expected_log.items():
        assert float(log[name]) == pytest.approx(float(value), rel=1e-12), name
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-10, atol=1e-13, msg=name)


def test_a_loss_for_each_position_where_it_is_asked_for():
    model = build_small("transformer").double()
    expected = run(LabelSmoothedCrossEntropyCriterion, model, reduce=False, report_accuracy=True)
    own = run(ChunkedLabelSmoothedCrossEntropyCriterion, model, reduce=False, report_accuracy=True)
    torch.testing.assert_close(own[0], expected[0], rtol=0, atol=0)
    assert own[2]["n_correct"] == expected[2]["n_correct"]


def test_an_output_bias_takes_part():
    model = build_small("transformer").double()
    model.decoder.output_projection.bias = torch.nn.Parameter(torch.randn(45, dtype=torch.float64))
    expected = run(LabelSmoothedCrossEntropyCriterion, model)
    own = run(ChunkedLabelSmoothedCrossEntropyCriterion, model, loss_chunk_rows=4)
    torch.testing.assert_close(own[0], expected[0], rtol=1e-12, atol=0)
    name = "decoder.output_projection.bias"
    torch.testing.assert_close(own[3][name], expected[3][name], rtol=1e-10, atol=1e-13)


def test_padding_is_never_projected(monkeypatch):
    seen = []
    from informer_fairseq.criterions import chunked_label_smoothed_cross_entropy as module

    real = module.chunked_smoothed_loss
    monkeypatch.setattr(
        module, "chunked_smoothed_loss", lambda x, *rest, **more: seen.append(len(x)) or real(x, *rest, **more)
    )
    run(ChunkedLabelSmoothedCrossEntropyCriterion, build_small("transformer"))
    assert seen == [19]


def test_adaptive_softmax_is_refused():
    model = build_small("transformer", adaptive_softmax_cutoff="10,20")
    with pytest.raises(ValueError, match="needs a linear output projection, which --adaptive-softmax-cutoff does not"):
        run(ChunkedLabelSmoothedCrossEntropyCriterion, model)


def test_a_model_that_knows_no_features_only_is_refused():
    encoder = LSTMEncoder(dictionary(50), embed_dim=8, hidden_size=8, num_layers=1)
    decoder = LSTMDecoder(dictionary(45, "v"), 8, 8, 8, num_layers=1, encoder_output_units=8)
    with pytest.raises(ValueError, match="needs a linear output projection, which <class '.*LSTMDecoder'> does not"):
        run(ChunkedLabelSmoothedCrossEntropyCriterion, LSTMModel(encoder, decoder))


def test_chunks_below_one_row_are_refused():
    with pytest.raises(ValueError, match="--loss-chunk-rows 0 is below 1"):
        ChunkedLabelSmoothedCrossEntropyCriterion(TASK, False, 0.1, loss_chunk_rows=0)


def test_a_training_has_the_same_losses(data_bin, tmp_path):
    """fairseq-train, two epochs, with either criterion."""
    losses = {}
    for name in ("label_smoothed_cross_entropy", "chunked_label_smoothed_cross_entropy"):
        run_train(data_bin, tmp_path / name, "linformer_mt_tiny", "--max-epoch", "2", "--criterion", name)
        losses[name] = torch.load(tmp_path / name / "checkpoint2.pt")["extra_state"]["val_loss"]
    assert losses["chunked_label_smoothed_cross_entropy"] == pytest.approx(
        losses["label_smoothed_cross_entropy"], abs=1e-3
    )
