"""Tries one flag set: the model it gives must work, or be refused in one line."""

import contextlib
import io
import re
import signal
import traceback
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Set

import torch
from fairseq import options, tasks
from fairseq.data import LanguagePairDataset

from informer_fairseq.errors import InputError, one_line_message
from tests.fuzz.flag_sets import CHUNKED, FlagSet
from tests.support.models import dictionary

SECONDS = 30  # a trial takes a tenth of one
TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
RAN, OURS, ARGPARSE, FAIRSEQ, AS_STOCK, FAULT = (
    *("ran", "refused by the plugin", "refused by the parser", "refused by fairseq in one line"),
    *("as stock transformer fails", "fault"),
)


KINDS = (RAN, OURS, ARGPARSE, FAIRSEQ, AS_STOCK, FAULT)


class Outcome(NamedTuple):
    """How a trial ended, and with what words."""

    kind: str
    detail: str = ""
    trace: str = ""


class Wrong(Exception):
    """A property that does not hold."""


class Hang(BaseException):
    """The time is over."""


def write_dictionaries(folder: Path) -> None:
    """A folder with a dictionary for each of two languages, and one with the same dictionary twice."""
    for name, target in (("apart", dictionary(27, "v")), ("joined", dictionary(29))):
        (folder / name).mkdir(parents=True, exist_ok=True)
        dictionary(29).save(str(folder / name / "dict.en.txt"))
        target.save(str(folder / name / "dict.vi.txt"))


def try_out(drawn: FlagSet, folder: Path) -> Outcome:
    """Tries one flag set; what stock ``transformer`` does just the same with the same flags is told apart.

    Args:
        drawn: the flag set.
        folder: what :func:`write_dictionaries` filled.
    """
    outcome = _try_model(drawn, folder, stock=False)
    if outcome.kind == FAULT:
        stock = _try_model(drawn, folder, stock=True)
        if stock.kind == FAULT and _alike(stock.detail) == _alike(outcome.detail):
            outcome = Outcome(AS_STOCK, outcome.detail)
    if drawn.sound and outcome.kind != RAN:
        return outcome._replace(kind=FAULT, detail=f"sound flags, but {outcome.kind}: {outcome.detail}")
    return outcome


def _alike(text: str) -> str:
    """Numbers and names of classes may differ."""
    return re.sub(r"\d+|\w*(Model|Encoder|Decoder)\b", "#", text)


def _try_model(drawn: FlagSet, folder: Path, stock: bool) -> Outcome:
    torch.manual_seed(1)
    printed = io.StringIO()
    try:
        with _time_limit(), contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
            _run(drawn, folder, stock)
    except SystemExit as error:
        lines = printed.getvalue().strip().splitlines()
        if error.code == 2 and lines and re.search(r"error: .{10,}", lines[-1]):
            return Outcome(ARGPARSE, lines[-1])
        return Outcome(FAULT, f"exit status {error.code}: {lines[-1:]}")
    except Hang:
        return Outcome(FAULT, f"no end after {SECONDS} s", traceback.format_exc())
    except Exception as error:
        return _judge(error)
    return Outcome(RAN)


def _judge(error: Exception) -> Outcome:
    message = one_line_message(error)
    if message is not None:
        if "\n" in message or not 20 < len(message) < 500:
            return Outcome(FAULT, f"a message of {len(message)} characters, {message.count(chr(10))} line ends")
        if isinstance(error, InputError):
            return Outcome(OURS, message)
        return Outcome(FAIRSEQ, message)
    return Outcome(FAULT, f"{type(error).__name__}: {str(error).strip()[:300]}", traceback.format_exc())


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Hang

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _run(drawn: FlagSet, folder: Path, stock: bool) -> None:
    data = folder / ("joined" if drawn.joined else "apart")
    words = [str(data), "--source-lang", "en", "--target-lang", "vi", *drawn.words(stock)]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    task = tasks.setup_task(args)
    model = task.build_model(args).to(getattr(torch, drawn.dtype))
    criterion = task.build_criterion(args)
    sample = _sample(drawn, args, task, model)
    _train(model, criterion, sample, drawn, folder, stock)
    model.eval()
    with torch.no_grad():
        _check_chunked_loss(model, criterion, sample, args)
        if drawn.dtype in TOLERANCES and not _draws_in_evaluation(args):
            _check_alone(model, sample, TOLERANCES[drawn.dtype])
        if drawn.beam:
            _check_generation(task, model, sample, drawn, exact=not _draws_in_evaluation(args))
        if drawn.reload and not _draws_in_evaluation(args):
            _check_reload(task, args, model, sample, drawn)


def _draws_in_evaluation(args: Namespace) -> bool:
    """Scalar quantization rounds by the range of what it has seen, which depends on the batch."""
    return (getattr(args, "quant_noise_scalar", 0) or 0) > 0


def _sample(drawn: FlagSet, args: Namespace, task: Any, model: Any) -> Dict[str, Any]:
    """A batch as fairseq makes it of sentences that the model's limits let pass."""
    limits = model.max_positions()
    generator = torch.Generator().manual_seed(1)  # the same sentences for stock, whatever its weights have drawn
    source, target = [], []
    for longest_source, longest_target in drawn.lengths:
        for side, length, limit, words in (
            (source, longest_source, limits[0], task.source_dictionary),
            (target, longest_target, limits[1], task.target_dictionary),
        ):
            tokens = torch.randint(4, len(words), (length,), generator=generator)
            tokens[-1] = words.eos()
            side.append(tokens[-max(1, min(length, limit)) :])
    sides = [data for side in (source, target) for data in (side, [len(tokens) for tokens in side])]
    dataset = LanguagePairDataset(
        *(*sides[:2], task.source_dictionary, *sides[2:], task.target_dictionary),
        left_pad_source=args.left_pad_source,
        left_pad_target=args.left_pad_target,
        shuffle=False,
    )
    return dataset.collater([dataset[number] for number in range(len(dataset))])


def _train(model: Any, criterion: Any, sample: Dict[str, Any], drawn: FlagSet, folder: Path, stock: bool) -> None:
    """One forward and backward pass: finite, and a gradient for every parameter that stock gives one."""
    model.train()
    loss, sample_size, _ = criterion(model, sample)
    _check_finite("loss", loss)
    (loss / max(int(sample_size), 1)).sum().backward()
    parameters = dict(model.named_parameters())
    # A dropout of 0.999 multiplies what it keeps by a thousand: too much for float16, in stock no less.
    must_be_finite = drawn.sound or drawn.dtype != "float16"
    for name, parameter in parameters.items():
        if parameter.grad is not None and must_be_finite:
            _check_finite(f"gradient of {name}", parameter.grad)
    lacking = {name for name, value in parameters.items() if value.requires_grad and value.grad is None}
    if lacking and not stock:
        unexplained = lacking - _explained(lacking, set(parameters), drawn, folder)
        if unexplained:
            raise Wrong(f"no gradient: {sorted(unexplained)}")


def _explained(lacking: Set[str], names: Set[str], drawn: FlagSet, folder: Path) -> Set[str]:
    """Which parameters stock leaves without gradient too, or belong to a layer that LayerDrop left out."""
    found = _lacking_in_stock(drawn, folder)
    looks = any(name.startswith("decoder.layers.") for name in names - lacking)
    if not looks or "--no-cross-attention" in drawn.flags:
        found |= {name for name in names if name.startswith("encoder.")}
    for side in ("encoder", "decoder"):
        if f"--{side}-layerdrop" in drawn.flags:
            for number in range(int(drawn.flags[f"--{side}-layers"] or 0)):
                layer = {name for name in names if name.startswith(f"{side}.layers.{number}.")}
                own = {name for name in layer if "projection" not in name}  # those of others may be kept here
                if own and own <= lacking:
                    found |= layer
    return found


def _lacking_in_stock(drawn: FlagSet, folder: Path) -> Set[str]:
    torch.manual_seed(1)
    data = folder / ("joined" if drawn.joined else "apart")
    words = [str(data), "--source-lang", "en", "--target-lang", "vi", *drawn.words(stock=True)]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    task = tasks.setup_task(args)
    model = task.build_model(args).to(getattr(torch, drawn.dtype))
    loss, _, _ = task.build_criterion(args)(model, _sample(drawn, args, task, model))
    loss.sum().backward()
    return {name for name, value in model.named_parameters() if value.requires_grad and value.grad is None}


def _check_finite(what: str, value: torch.Tensor) -> None:
    if not bool(value.isfinite().all()):
        raise Wrong(f"{what} is not finite")


def _check_close(what: str, value: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    _check_finite(what, value)
    if value.shape != expected.shape:
        raise Wrong(f"{what}: shape {tuple(value.shape)}, not {tuple(expected.shape)}")
    off = float((value - expected).abs().max()) if value.numel() else 0.0
    limit = tolerance * max(1.0, float(expected.abs().max()) if value.numel() else 0.0)
    if off > limit:
        raise Wrong(f"{what}: off by {off:.1e}")


def _check_chunked_loss(model: Any, criterion: Any, sample: Dict[str, Any], args: Namespace) -> None:
    """The fused loss is fairseq's own."""
    if args.criterion != CHUNKED or model.decoder.embed_tokens.weight.dtype not in (torch.float32, torch.float64):
        return
    fused = criterion(model, sample)
    plain = super(type(criterion), criterion).compute_loss(model, model(**sample["net_input"]), sample)
    _check_close("chunked loss", fused[0], plain[0], 1e-4)


def _check_alone(model: Any, sample: Dict[str, Any], tolerance: float) -> None:
    """A sentence alone has the encoder output that it has in its batch."""
    tokens, lengths = sample["net_input"]["src_tokens"], sample["net_input"]["src_lengths"]
    together = model.encoder(tokens, lengths)["encoder_out"][0]
    for row in range(tokens.size(0)):
        kept = tokens[row].ne(model.encoder.padding_idx)
        alone = model.encoder(tokens[row][kept].unsqueeze(0), lengths[row : row + 1])["encoder_out"][0]
        _check_close("encoder output in a batch and alone", together[kept, row], alone[:, 0], tolerance)


def _check_generation(task: Any, model: Any, sample: Dict[str, Any], drawn: FlagSet, exact: bool) -> None:
    """As many hypotheses as sentences; their scores are those of the whole hypothesis at once."""
    flags = Namespace(beam=drawn.beam, nbest=1, max_len_a=0, max_len_b=4)
    found = task.inference_step(task.build_generator([model], flags), [model], sample)
    if len(found) != sample["id"].numel() or not all(found):
        raise Wrong(f"{len(found)} lists of hypotheses, {sum(map(bool, found))} of them not empty")
    source = sample["net_input"]["src_tokens"]
    for row, hypotheses in enumerate(found):
        tokens, scores = hypotheses[0]["tokens"], hypotheses[0]["positional_scores"]
        _check_finite("scores", scores)
        if drawn.dtype not in TOLERANCES or not exact:
            continue
        previous = torch.cat([tokens.new_tensor([task.target_dictionary.eos()]), tokens[:-1]]).unsqueeze(0)
        own = source[row : row + 1][:, source[row].ne(model.encoder.padding_idx)]
        output = model(own, own.new_tensor([own.size(1)]), previous)
        forced = model.get_normalized_probs(output, log_probs=True, sample=None)[0]
        # The search works in float32.
        _check_close("scores", scores.float(), forced.gather(1, tokens.unsqueeze(1)).squeeze(1).float(), 1e-4)


def _check_reload(task: Any, args: Namespace, model: Any, sample: Dict[str, Any], drawn: FlagSet) -> None:
    """The weights go through a second model."""
    torch.manual_seed(2)
    second = task.build_model(args).to(getattr(torch, drawn.dtype))
    second.load_state_dict(model.state_dict(), strict=True)
    expected, found = (one.eval()(**sample["net_input"])[0] for one in (model, second))
    _check_close("output of the loaded model", found.double(), expected.double(), 1e-6)
