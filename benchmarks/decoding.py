"""Sentences a second of fairseq's own beam search, and of translating on all cores."""

import argparse
import contextlib
import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import torch
import torch.nn as nn
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from benchmarks.rows import Row, timed_rows
from benchmarks.side_by_side import interleave
from benchmarks.training_steps import ARCHS, STOCK, TINY, Setting

ROOT = Path(__file__).resolve().parents[1]


def dictionary(types: int) -> Dictionary:
    """With so many types, fairseq's own four included."""
    words = Dictionary()
    for number in range(types - len(words)):
        words.add_symbol(f"w{number}")
    return words


def build_model(arch: str, words: Dictionary, tiny: bool, **flags: Any) -> nn.Module:
    """At base or tiny size, with one dictionary for both sides; further flags by their names."""
    sizes: Dict[str, Any] = {}
    if tiny and arch == STOCK:
        sizes = {
            f"{side}_{name.replace('-', '_')}": value for side in ("encoder", "decoder") for name, value in TINY.items()
        }
    args = argparse.Namespace(share_decoder_input_output_embed=True, **sizes, **flags)
    name = f"{arch}_tiny" if tiny and arch != STOCK else arch
    ARCH_CONFIG_REGISTRY[name](args)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words, datasets={}, load_dataset=lambda *_: None)
    return ARCH_MODEL_REGISTRY[name].build_model(args, task).eval()


def measure(setting: Setting, beam: int, rounds: int, device: torch.device) -> List[Row]:
    """Times as fast as stock; every sentence gets T tokens, so that all systems take the same number of steps."""
    words = dictionary(setting.target_types)
    torch.manual_seed(1)
    source = torch.randint(4, len(words), (setting.batch, setting.length), device=device)
    lengths = torch.full((setting.batch,), setting.length, device=device)
    runs = {}
    for arch in (STOCK, *ARCHS):
        model = build_model(arch, words, setting.tiny).to(device)
        steps = setting.length
        generator = SequenceGenerator([model], words, beam_size=beam, max_len_a=0, max_len_b=steps, min_len=steps)
        sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        runs[arch] = lambda generator=generator, model=model, sample=sample: generator.generate([model], sample)
    promised = () if setting.batch < 16 else tuple(arch for arch in ARCHS if arch != "ni_transformer")
    limits = dict.fromkeys(promised, 1.0)
    name = f"{'tiny' if setting.tiny else 'base'}, {setting.batch} x {setting.length}, beam {beam}"
    return timed_rows("Decoding: times as fast as stock", name, interleave(runs, rounds), STOCK, limits)


def measure_processes(lines: int, rounds: int, processes: int = 2) -> List[Row]:
    """fairseq-generate against parallel_generate, start-up included, on a tiny model; hypotheses must be equal."""
    with tempfile.TemporaryDirectory() as folder:
        options = _checkpoint_and_data(Path(folder), lines)
        outputs: Dict[str, str] = {}
        one = [sys.executable, "-m", "fairseq_cli.generate", *options]
        all_cores = [
            sys.executable,
            "-m",
            "informer_fairseq.parallel_generate",
            "--processes",
            str(processes),
            *options,
        ]
        names = {"fairseq-generate": one, f"parallel_generate --processes {processes}": all_cores}
        times: Dict[str, List[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name, command in names.items():
                start = time.perf_counter()
                made = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
                times[name].append(time.perf_counter() - start)
                outputs[name] = made.stdout
    hypotheses = [_hypotheses(text) for text in outputs.values()]
    if hypotheses[0] != hypotheses[1]:
        raise AssertionError("the processes translated otherwise than one process")
    setting = f"tiny, {lines:,} lines, beam 5, start of the processes included"
    limits = {list(names)[1]: 1.5}
    return timed_rows("Translating on all cores: times as fast", setting, times, "fairseq-generate", limits)


def _hypotheses(text: str) -> List[str]:
    lines = [line.split("\t") for line in text.split("\n") if line.startswith("H-")]
    return [words for _, _, words in sorted(lines, key=lambda parts: int(parts[0][2:]))]


def _checkpoint_and_data(folder: Path, lines: int) -> Sequence[str]:
    """A data-bin of random words and a checkpoint of informer_mt_tiny without training; options to translate with."""
    from fairseq import options
    from fairseq_cli import preprocess, train

    generator = torch.Generator().manual_seed(1)
    for split, count in (("train", 64), ("valid", 8), ("test", lines)):
        for language in ("en", "de"):
            rows = [
                " ".join(f"w{int(word)}" for word in torch.randint(0, 5000, (int(length),), generator=generator))
                for length in torch.randint(8, 25, (count,), generator=generator)
            ]
            (folder / f"{split}.{language}").write_text("\n".join(rows) + "\n", encoding="utf-8")
    dictionary = folder / "dict.txt"
    dictionary.write_text("".join(f"w{number} 1\n" for number in range(5000)), encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        prefixes = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
        parser = options.get_preprocessing_parser()
        data = str(folder / "bin")
        shared = ["--joined-dictionary", f"--srcdict={dictionary}", f"--destdir={data}"]
        preprocess.main(parser.parse_args(["-s", "en", "-t", "de", *prefixes, *shared]))
        words = [data, "--arch", "informer_mt_tiny", "--optimizer", "adam", "--max-update", "1", "--max-tokens", "2000"]
        words += ["--save-dir", str(folder / "model"), "--cpu", "--no-epoch-checkpoints", "--task", "translation"]
        args = options.parse_args_and_arch(options.get_training_parser(), words)
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf

        train.main(convert_namespace_to_omegaconf(args))
    model = str(folder / "model" / "checkpoint_last.pt")
    device = ["--cpu"] if not torch.cuda.is_available() else []
    found = [data, "--user-dir", str(ROOT / "informer_fairseq"), "--path", model, "--beam", "5", "--batch-size", "64"]
    return [*found, "--max-len-a", "0", "--max-len-b", "25", "--required-batch-size-multiple", "1", *device]
