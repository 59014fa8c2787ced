"""``--criterion chunked_label_smoothed_cross_entropy``: fairseq's label-smoothed loss in less time and memory."""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

import torch.nn as nn
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor

from informer_fairseq.criterions.chunked_loss import chunked_smoothed_loss
from informer_fairseq.errors import InputError


@dataclass
class ChunkedLabelSmoothedCrossEntropyCriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """fairseq's flags, and the size of a chunk."""

    loss_chunk_rows: int = field(
        default=512, metadata={"help": "target positions whose logits are held at a time (default: 512)"}
    )


@register_criterion("chunked_label_smoothed_cross_entropy", dataclass=ChunkedLabelSmoothedCrossEntropyCriterionConfig)
class ChunkedLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy`` with the output projection fused into the loss.

    Loss, negative log-likelihood, accuracy and gradients are the same; the logits of a whole batch are never held, and
    padded positions cost nothing. For any model whose decoder ends in a linear output projection, the stock
    ``transformer`` included.

    Args:
        task: fairseq's task.
        sentence_avg: as in fairseq.
        label_smoothing: epsilon.
        ignore_prefix_size: as in fairseq.
        report_accuracy: as in fairseq.
        loss_chunk_rows: target positions of a chunk.

    Raises:
        InputError: ``loss_chunk_rows`` is below 1.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        loss_chunk_rows: int = 512,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if loss_chunk_rows < 1:
            raise InputError(f"--loss-chunk-rows {loss_chunk_rows} is below 1: give 1 or more")
        self.loss_chunk_rows = loss_chunk_rows
        self._accuracy: Optional[Tuple[Tensor, Tensor]] = None  # of the batch whose loss was computed last

    def forward(self, model: Any, sample: Dict[str, Any], reduce: bool = True) -> Any:
        """The loss of a batch; as fairseq's, but the model is asked for features instead of logits."""
        if not reduce:
            return super().forward(model, sample, reduce)
        output_projection_of(model)  # other models may not know features_only either: refuse before they are asked
        return super().forward(model, {**sample, "net_input": {**sample["net_input"], "features_only": True}}, reduce)

    def compute_loss(self, model: Any, net_output: Any, sample: Dict[str, Any], reduce: bool = True) -> Any:
        """Sums of loss and negative log-likelihood over the batch (Raises InputError)."""
        self._accuracy = None
        if not reduce:
            return super().compute_loss(model, net_output, sample, reduce)
        projection = output_projection_of(model)
        features, target = net_output[0], model.get_targets(sample, net_output)
        if self.ignore_prefix_size > 0:
            features, target = features[:, self.ignore_prefix_size :], target[:, self.ignore_prefix_size :]
        kept = target.ne(self.padding_idx)
        loss, nll, right = chunked_smoothed_loss(
            features[kept],  # B x T x C -> N x C
            projection.weight,
            projection.bias,
            target[kept],
            epsilon=self.eps,
            rows=self.loss_chunk_rows,
            count_right=self.report_accuracy,
        )
        self._accuracy = None if right is None else (right, kept.sum())
        return loss, nll

    def compute_accuracy(self, model: Any, net_output: Any, sample: Dict[str, Any]) -> Tuple[Tensor, Tensor]:
        """Right and all positions of the batch whose loss was just computed."""
        if self._accuracy is None:
            return super().compute_accuracy(model, net_output, sample)
        return self._accuracy


def output_projection_of(model: Any) -> nn.Linear:
    """The linear map in which the model's decoder ends.

    Raises:
        InputError: it ends in something else, such as adaptive softmax.
    """
    decoder = model.decoder
    projection = getattr(decoder, "output_projection", None)
    if getattr(decoder, "adaptive_softmax", None) is not None or not isinstance(projection, nn.Linear):
        kind = "--adaptive-softmax-cutoff" if getattr(decoder, "adaptive_softmax", None) is not None else type(decoder)
        raise InputError(
            f"--criterion chunked_label_smoothed_cross_entropy needs a linear output projection, which {kind} does not "
            "give: use label_smoothed_cross_entropy or adaptive_loss"
        )
    return projection
