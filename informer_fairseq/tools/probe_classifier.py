"""The probe: a classifier with one hidden layer over fixed sentence vectors."""

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as np
from sklearn.neural_network import MLPClassifier

_CHUNK = 4096  # examples handed over at once: the library makes a dense row of classes for each


@dataclass
class ProbeResult:
    """What a probe found.

    Attributes:
        accuracy: on the test split, 0 to 1.
        valid_accuracy: the best on the validation split, whose weights were tested.
        epochs: passes over the training split until then.
        majority: accuracy of always saying the training split's most frequent label.
    """

    accuracy: float
    valid_accuracy: float
    epochs: int
    majority: float


def majority_accuracy(train: Sequence[str], test: Sequence[str]) -> float:
    """The share of ``test`` that has the most frequent label of ``train`` (the first by name of equals)."""
    labels, counts = np.unique(np.asarray(train), return_counts=True)
    return float(np.mean(np.asarray(test) == labels[counts.argmax()]))


def fit_probe(
    features: Sequence[np.ndarray],
    labels: Sequence[Sequence[str]],
    *,
    hidden: int = 128,
    seed: int = 1,
    patience: int = 5,
    max_epochs: int = 100,
) -> ProbeResult:
    """Trains on the first split, stops by the second, scores on the third.

    Args:
        features: three arrays, N x C each: training, validation, test.
        labels: N labels for each.
        hidden: units of the hidden layer (ReLU).
        seed: of the initial weights and of the order of examples.
        patience: epochs without a better validation accuracy after which training ends.
        max_epochs: the most passes.

    Raises:
        ValueError: the training split has fewer than two labels.
    """
    train_labels, valid_labels, test_labels = (np.asarray(split) for split in labels)
    classes = np.unique(np.concatenate([train_labels, valid_labels, test_labels]))
    if len(np.unique(train_labels)) < 2:
        raise ValueError("a probe needs two labels or more")
    mean, spread = features[0].mean(axis=0), features[0].std(axis=0)
    spread[spread == 0] = 1
    train, valid, test = ((split - mean) / spread for split in features)
    generator = np.random.RandomState(seed)
    model = MLPClassifier((hidden,), solver="adam", batch_size=min(200, len(train)), random_state=generator)
    best, best_epoch = -1.0, 0
    weights: Tuple[List[np.ndarray], List[np.ndarray]] = ([], [])
    for epoch in range(1, max_epochs + 1):
        order = generator.permutation(len(train))
        for start in range(0, len(order), _CHUNK):
            rows = order[start : start + _CHUNK]
            model.partial_fit(train[rows], train_labels[rows], classes=classes)
        accuracy = float(np.mean(model.predict(valid) == valid_labels))
        if accuracy > best:
            best, best_epoch = accuracy, epoch
            weights = ([part.copy() for part in model.coefs_], [part.copy() for part in model.intercepts_])
        elif epoch - best_epoch >= patience:
            break
    model.coefs_, model.intercepts_ = weights
    accuracy = float(np.mean(model.predict(test) == test_labels))
    return ProbeResult(accuracy, best, best_epoch, majority_accuracy(labels[0], labels[2]))
