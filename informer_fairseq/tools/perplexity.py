"""Perplexity: 2 to the power of the loss in bits per target token, from a log or by running a checkpoint on a set."""

from typing import Any, Dict, List

import torch
from fairseq import checkpoint_utils, utils
from tqdm import tqdm

import informer_fairseq  # noqa: F401  (registers the architectures)
from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import read_lines
from informer_fairseq.tools.training_logs import find_log, parse_validations


def from_log(path: str) -> List[Dict[str, Any]]:
    """The last validation on each set in a log of fairseq-train or fairseq-validate.

    Raises:
        InputError: the log has no perplexity of any validation.
    """
    log = find_log(path)
    last = {}
    for validation in parse_validations(read_lines(log)):
        if validation.perplexity is not None:
            last[validation.subset] = validation
    if not last:
        raise InputError(
            f"{log} has no validation with a perplexity: give a log of fairseq-train or fairseq-validate with "
            "--log-format simple or json"
        )
    return [
        {"set": name, "perplexity": one.perplexity, "bits": one.bits, "from": f"{log}, after {one.updates} updates"}
        for name, one in last.items()
    ]


def from_checkpoint(path: str, data: str, subset: str, max_tokens: int) -> Dict[str, Any]:
    """Runs a checkpoint over a binarized set with its references as decoder input.

    Every target token counts once, ``</s>`` included, without label smoothing, as in fairseq's own ``nll_loss``.

    Args:
        path: a fairseq checkpoint.
        data: the data-bin folder.
        subset: the set's name there.
        max_tokens: largest batch, in tokens with padding.

    Raises:
        InputError: the set has no targets.
    """
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides={"data": data})
    model = models[0].eval()
    if torch.cuda.is_available():
        model = model.cuda()
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    limits = utils.resolve_max_positions(task.max_positions(), model.max_positions())
    batches = task.get_batch_iterator(dataset=dataset, max_tokens=max_tokens, max_positions=limits)
    bits, tokens = 0.0, 0
    with torch.no_grad():
        for sample in tqdm(batches.next_epoch_itr(shuffle=False), desc=f"perplexity on {subset}", disable=None):
            if sample.get("target") is None:
                raise InputError(f"{data}: the set '{subset}' has no targets, without which there is no perplexity")
            sample = utils.move_to_cuda(sample) if torch.cuda.is_available() else sample
            scores = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True).double()
            target = sample["target"]
            chosen = scores.gather(2, target.unsqueeze(2)).squeeze(2)  # B x T x V -> B x T
            real = target.ne(task.target_dictionary.pad())
            bits -= float(chosen[real].sum()) / float(torch.log(torch.tensor(2.0, dtype=torch.double)))
            tokens += int(real.sum())
    mean = bits / tokens
    return {"set": subset, "perplexity": 2**mean, "bits": mean, "from": f"{path}, {tokens} target tokens"}
