"""fairseq's own commands on every architecture: train, resume, average, ensemble, generate, interactive."""

import re
import subprocess
import sys

import pytest
import torch
from fairseq import options
from fairseq_cli import generate, train

from informer_fairseq import average_checkpoints
from tests.conftest import ROOT
from tests.support.models import ALL_ARCHS, PAPER_ARCHS

USER_DIR = str(ROOT / "informer_fairseq")
SIZES = "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 32 --decoder-embed-dim 32 --dropout 0".split()
TRAINING = (
    "--optimizer adam --lr 1e-3 --max-tokens 600 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
    "--num-workers 0 --seed 3 --cpu --no-progress-bar --update-epoch-batch-itr True"
).split()


def run_train(data_bin, save_dir, arch, *more):
    parser = options.get_training_parser()
    arguments = [str(data_bin[0]), "--user-dir", USER_DIR, "--arch", arch, "--save-dir", str(save_dir)]
    args = options.parse_args_and_arch(parser, [*arguments, *SIZES, *TRAINING, *more])
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    train.main(convert_namespace_to_omegaconf(args))


def run_generate(data_bin, path, *more, output):
    parser = options.get_generation_parser()
    arguments = [str(data_bin[0]), "--user-dir", USER_DIR, "--path", str(path), "--cpu", "--num-workers", "0"]
    arguments += ["--required-batch-size-multiple", "1", "--results-path", str(output), "--no-progress-bar", *more]
    generate.main(options.parse_args_and_arch(parser, arguments))
    hypotheses = {}
    for line in (output / "generate-test.txt").read_text(encoding="utf-8").splitlines():
        found = re.match(r"H-(\d+)\t(\S+)\t(.*)", line)
        if found:
            hypotheses[int(found.group(1))] = (found.group(3), float(found.group(2)))
    return hypotheses


@pytest.fixture(scope="module", params=ALL_ARCHS)
def trained(request, data_bin, tmp_path_factory):
    """(architecture, folder of checkpoints 1 to 3, the third from a resumed run).

    fairseq seeds the order of equally long sentences with the epoch at which a process forms its batches, and keeps
    these batches: only with --update-epoch-batch-itr does a resumed run see the batches of an uninterrupted one.
    """
    folder = tmp_path_factory.mktemp(request.param)
    run_train(data_bin, folder, f"{request.param}_tiny", "--max-epoch", "2")
    run_train(data_bin, folder, f"{request.param}_tiny", "--max-epoch", "3")
    return request.param, folder


def test_a_resumed_run_equals_an_uninterrupted_one(trained, data_bin, tmp_path):
    arch, folder = trained
    run_train(data_bin, tmp_path, f"{arch}_tiny", "--max-epoch", "3")
    resumed = torch.load(folder / "checkpoint3.pt")["model"]
    whole = torch.load(tmp_path / "checkpoint3.pt")["model"]
    assert resumed.keys() == whole.keys()
    for name, weight in whole.items():
        assert torch.equal(resumed[name], weight), name


@pytest.mark.parametrize("beam", ["1", "5"])
def test_generation_does_not_depend_on_the_batch_size(trained, data_bin, tmp_path, beam):
    _, folder = trained
    results = {}
    for size in (1, 2, 64):
        output = tmp_path / str(size)
        results[size] = run_generate(
            *(data_bin, folder / "checkpoint3.pt", "--beam", beam, "--batch-size", str(size)), output=output
        )
    assert sorted(results[1]) == list(range(23))  # as many hypotheses as lines
    for size in (2, 64):
        assert {n: text for n, (text, _) in results[size].items()} == {n: text for n, (text, _) in results[1].items()}
        for number, (_, score) in results[size].items():
            assert score == pytest.approx(results[1][number][1], abs=1e-4)


def test_generation_does_not_depend_on_the_padding_side(trained, data_bin, tmp_path):
    _, folder = trained
    left = run_generate(data_bin, folder / "checkpoint3.pt", "--batch-size", "8", output=tmp_path / "left")
    right = run_generate(
        *(data_bin, folder / "checkpoint3.pt", "--batch-size", "8", "--left-pad-source"), output=tmp_path / "right"
    )
    assert {n: text for n, (text, _) in right.items()} == {n: text for n, (text, _) in left.items()}


def test_average_and_ensemble_translate_every_line(trained, data_bin, tmp_path):
    _, folder = trained
    paths = [str(folder / f"checkpoint{number}.pt") for number in (1, 2, 3)]
    average_checkpoints.main(["--inputs", *paths, "--output", str(tmp_path / "mean.pt")])
    assert len(run_generate(data_bin, tmp_path / "mean.pt", "--beam", "2", output=tmp_path / "mean")) == 23
    assert len(run_generate(data_bin, ":".join(paths), "--beam", "2", output=tmp_path / "ensemble")) == 23


def test_returned_scores_equal_teacher_forced_scores(trained, data_bin, tmp_path):
    """Incremental decoding with beam 5: a wrongly reordered cache would give other scores."""
    from fairseq import checkpoint_utils

    _, folder = trained
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "checkpoint3.pt")], arg_overrides={"data": str(data_bin[0])}
    )
    task.load_dataset("test")
    model = models[0].eval()
    generator = task.build_generator(models, task.cfg.generation if hasattr(task.cfg, "generation") else _beam(5))
    dataset = task.dataset("test")
    sample = dataset.collater([dataset[number] for number in range(6)])
    for row, hypotheses in enumerate(task.inference_step(generator, models, sample)):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            previous = torch.cat([tokens.new_tensor([task.target_dictionary.eos()]), tokens[:-1]]).unsqueeze(0)
            source = sample["net_input"]["src_tokens"][row : row + 1]
            log_probabilities = model.get_normalized_probs(model(source, None, previous), log_probs=True)
            forced = log_probabilities[0].gather(1, tokens.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(hypothesis["positional_scores"], forced, rtol=0, atol=1e-4)


def _beam(size):
    from fairseq.dataclass.configs import GenerationConfig

    return GenerationConfig(beam=size, nbest=size)


def run(command, folder, text=None):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=folder, input=text, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arch", PAPER_ARCHS)
def test_interactive_translates_an_empty_line_too(arch, data_bin, tmp_path):
    """From another folder, with an absolute path to the plugin, and text with every kind of space line."""
    run_train(data_bin, tmp_path, f"{arch}_tiny", "--max-update", "2")
    command = ["fairseq_cli.interactive", data_bin[0], "--user-dir", USER_DIR, "--beam", "5", "--cpu"]
    command += ["--path", tmp_path / "checkpoint_last.pt"]
    code, out, err = run(command, tmp_path, "w1 w2\n\nw3\n   \n")
    assert code == 0, err
    scores = [float(line.split("\t")[1]) for line in out.splitlines() if line.startswith("H-")]
    assert len(scores) == 4 and all(score > -1e9 for score in scores)


def test_a_source_longer_than_n_is_told_in_one_line(data_bin, tmp_path):
    run_train(data_bin, tmp_path, "informer_mt_tiny", "--max-update", "2", "--disable-validation")
    command = ["fairseq_cli.interactive", data_bin[0], "--user-dir", USER_DIR, "--cpu"]
    command += ["--path", tmp_path / "checkpoint_last.pt"]
    code, _, err = run(command, tmp_path, "w1 " * 200)
    assert code == 1 and "Traceback" not in err
    assert re.search(r"fairseq-interactive: error: .*201.*max_positions=\(200, ", err.splitlines()[-1])


def test_training_refuses_a_validation_set_over_n_before_the_first_update(data_bin, tmp_path):
    with pytest.raises(ValueError, match="valid: .* of 13 sources exceed the encoder's limit of 16"):
        run_train(data_bin, tmp_path, "informer_mt_tiny", "--encoder-fixed-length", "16")
    assert list(tmp_path.glob("*.pt")) == []


@pytest.mark.parametrize(
    "more",
    [
        ["--bf16"],
        ["--fp16", "--fp16-no-flatten-grads"],
        ["--checkpoint-activations"],
        ["--encoder-normalize-before", "--decoder-normalize-before", "--encoder-learned-pos", "--layernorm-embedding"],
        ["--encoder-layerdrop", "0.3", "--decoder-layerdrop", "0.3"],
    ],
    ids=lambda more: more[0],
)
@pytest.mark.parametrize("arch", PAPER_ARCHS)
def test_stock_flags_keep_working(arch, more, data_bin, tmp_path):
    run_train(data_bin, tmp_path, f"{arch}_tiny", "--max-update", "3", "--no-epoch-checkpoints", *more)
    state = torch.load(tmp_path / "checkpoint_last.pt")
    assert all(weight.isfinite().all() for weight in state["model"].values() if weight.is_floating_point())
    assert state["optimizer_history"][-1]["num_updates"] == 3


@pytest.mark.parametrize("arch", PAPER_ARCHS)
def test_batches_from_worker_processes(arch, data_bin, tmp_path):
    """In a process of its own, which the workers end with: here they would wait for their queues to be collected."""
    command = ["fairseq_cli.train", data_bin[0], "--user-dir", USER_DIR, "--arch", f"{arch}_tiny", *SIZES, *TRAINING]
    command += [
        "--save-dir",
        tmp_path / "workers",
        "--no-epoch-checkpoints",
        "--num-workers",
        "2",
        "--update-freq",
        "2",
    ]
    code, _, err = run([*command, "--max-update", "3"], tmp_path)
    assert code == 0, err
    of_workers = torch.load(tmp_path / "workers/checkpoint_last.pt")
    run_train(data_bin, tmp_path, f"{arch}_tiny", "--no-epoch-checkpoints", "--update-freq", "2", "--max-update", "3")
    alone = torch.load(tmp_path / "checkpoint_last.pt")
    assert of_workers["optimizer_history"][-1]["num_updates"] == 3
    assert all(torch.equal(weight, alone["model"][name]) for name, weight in of_workers["model"].items())
