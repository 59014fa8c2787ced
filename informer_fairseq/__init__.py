"""Efficient encoders for machine translation as a fairseq plugin: ``--user-dir informer_fairseq --arch informer_mt``.

Importing the package repairs what stands between fairseq and today's PyTorch (:mod:`informer_fairseq.compat`) and
registers the architectures (:mod:`informer_fairseq.models`).
"""

from informer_fairseq import compat, errors

__version__ = "0.1.0"

errors.show_errors_in_one_line()
compat.apply_repairs()

from informer_fairseq.criterions import chunked_label_smoothed_cross_entropy  # noqa: E402
from informer_fairseq.models import (  # noqa: E402  (registration needs the repairs)
    conv_linformer_mt,
    informer_mt,
    linformer_informer_mt,
    linformer_mt,
    ni_transformer,
)

__all__ = [
    "chunked_label_smoothed_cross_entropy",
    "conv_linformer_mt",
    "informer_mt",
    "linformer_informer_mt",
    "linformer_mt",
    "ni_transformer",
]
