"""Beam search over a model without fairseq's command line, and the scores it ought to give."""

import torch
from fairseq.sequence_generator import SequenceGenerator

from tests.support.models import dictionary

TARGET = dictionary(45, "v")


def search(models, source, beam, target=TARGET, **options):
    """Translations of a batch (B x T): for each sentence its hypotheses, best first."""
    limits = {"max_len_a": 0, "max_len_b": 12, "min_len": 4, **options}
    generator = SequenceGenerator(models, target, beam_size=beam, **limits)
    lengths = source.ne(1).sum(dim=1)
    return generator.generate(models, {"net_input": {"src_tokens": source, "src_lengths": lengths}})


def teacher_forced_scores(model, source, tokens):
    """1 x T source and a hypothesis' tokens -> the log-probability of each of them."""
    previous = torch.cat([tokens.new_tensor([TARGET.eos()]), tokens[:-1]]).unsqueeze(0)
    log_probabilities = model.get_normalized_probs(model(source, None, previous), log_probs=True)
    return log_probabilities[0].gather(1, tokens.unsqueeze(1)).squeeze(1)


def assert_scores_are_teacher_forced(model, source, beam, **options):
    """Every score of every hypothesis (1e-4), whatever the search made of its cache."""
    for row, hypotheses in enumerate(search([model], source, beam, **options)):
        assert len(hypotheses) == beam
        for hypothesis in hypotheses:
            expected = teacher_forced_scores(model, source[row : row + 1], hypothesis["tokens"])
            torch.testing.assert_close(hypothesis["positional_scores"], expected, rtol=0, atol=1e-4, check_dtype=False)
