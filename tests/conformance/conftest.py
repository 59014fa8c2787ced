"""What the tests of interruption and damage read, made once a process: no test may change it."""

import functools

import pytest

from tests.support.checkpoints import save_small
from tests.support.damage import run_train
from tests.support.models import ALL_ARCHS


@pytest.fixture(scope="session")
def uninterrupted(data_bin, tmp_path_factory):
    """Architecture -> folder of a run of two epochs, trained when it is first asked for."""

    @functools.cache
    def run(arch):
        folder = tmp_path_factory.mktemp(f"whole_{arch}")
        run_train(data_bin, folder, arch, "--max-epoch", "2")
        return folder

    return run


@pytest.fixture(scope="module", params=["transformer", *(f"{arch}_tiny" for arch in ALL_ARCHS)])
def whole(request, uninterrupted):
    """(architecture, folder of an uninterrupted run of two epochs)."""
    return request.param, uninterrupted(request.param)


@pytest.fixture(scope="module")
def informer(uninterrupted):
    """The same of one architecture."""
    return "informer_mt_tiny", uninterrupted("informer_mt_tiny")


@pytest.fixture(scope="session")
def model(data_bin, tmp_path_factory):
    """A small checkpoint of random weights."""
    path = tmp_path_factory.mktemp("model") / "checkpoint3.pt"
    save_small(path, data_bin[0])
    return path
