"""Repairs of files: checkpoints, flags within them, archives of models, binarized text, logs."""

import functools
import inspect
import logging
import os
import sys
import tarfile
from typing import Any

from fairseq import checkpoint_utils, file_utils, utils
from fairseq.data import indexed_dataset
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar

from informer_fairseq.checkpoint_files import replaced_when_whole, save_whole
from informer_fairseq.data_checks import check_indexed_text
from informer_fairseq.errors import InputError
from informer_fairseq.flag_values import read_value


def apply_repairs() -> None:
    """Applies every repair whose defect is present."""
    write_checkpoints_whole()
    tell_missing_restore_file()
    evaluate_nothing()
    unpack_within_the_folder()
    tell_damaged_data()
    log_each_line_once()


# --- Defect 13: fairseq copies checkpoints in place, and tries a failed write again behind its own remains. ---


def write_checkpoints_whole() -> None:
    """Lets a checkpoint appear whole or not at all under each of its names, whatever interrupts the writing."""
    save = checkpoint_utils.torch_persistent_save
    if not getattr(save, "writes_whole", False):

        @functools.wraps(save)
        def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> None:
            if async_write or not PathManager.supports_rename(filename):
                save(obj, filename, async_write=async_write)
            else:
                save_whole(obj, filename)

        torch_persistent_save.writes_whole = True  # type: ignore[attr-defined]
        checkpoint_utils.torch_persistent_save = torch_persistent_save
    if checkpoint_utils.PathManager is PathManager:
        checkpoint_utils.PathManager = _WholeCopies


class _WholeCopies(PathManager):
    """fairseq's access to files, for its checkpoints."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if not PathManager.supports_rename(dst_path):
            return PathManager.copy(src_path, dst_path, overwrite=overwrite)
        with replaced_when_whole(dst_path) as partial:
            return PathManager.copy(src_path, partial, overwrite=True)


# --- Defect 14: a --restore-file that is not there is passed over: training starts anew, over the old checkpoints. ---


def tell_missing_restore_file() -> None:
    """Refuses a ``--restore-file`` that does not exist, in place of a log line."""
    load = checkpoint_utils.load_checkpoint
    if getattr(load, "tells_missing_file", False):
        return

    @functools.wraps(load)
    def load_checkpoint(cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        given = cfg.restore_file
        suffixed = given.replace(".pt", f"{trainer.checkpoint_suffix or ''}.pt")
        if given != "checkpoint_last.pt" and not PathManager.isfile(suffixed):
            inside = os.path.join(cfg.save_dir, given)
            advice = f"the one in --save-dir is {inside}" if os.path.isfile(inside) else "check the path"
            raise InputError(f"no such checkpoint: --restore-file {suffixed}; {advice}")
        return load(cfg, trainer, **kwargs)

    load_checkpoint.tells_missing_file = True  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint = load_checkpoint


# --- Defect 15: fairseq evaluates flags as Python, also those that a checkpoint brings. ---


def evaluate_nothing() -> None:
    """Lets fairseq read the values of flags as literals: ``eval`` in its modules is :func:`read_value`."""
    try:
        if utils.eval_str_list("abs(1)") != [1.0]:
            return
    except InputError:
        return
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli"):
            vars(module).setdefault("eval", read_value)


# --- Defect 16: an archive of a model is unpacked wherever its members say. ---


def unpack_within_the_folder() -> None:
    """Refuses archives given to ``from_pretrained`` whose members lie outside of the folder they are unpacked to."""
    load = file_utils.load_archive_file
    if getattr(load, "stays_within", False):
        return

    @functools.wraps(load)
    def load_archive_file(archive_file: str) -> Any:
        if os.path.isdir(archive_file):
            return load(archive_file)
        if not hasattr(tarfile, "data_filter"):
            raise InputError(f"{archive_file}: this Python unpacks archives unsafely; unpack it and give the folder")
        before = tarfile.TarFile.extraction_filter
        tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
        try:
            return load(archive_file)
        except tarfile.TarError as error:
            raise InputError(f"{archive_file} is refused ({error}): get the archive from a source you trust") from error
        finally:
            tarfile.TarFile.extraction_filter = before

    load_archive_file.stays_within = True  # type: ignore[attr-defined]
    file_utils.load_archive_file = load_archive_file


# --- Defect 17: binarized text that is cut ends in an error of numpy, at the start or in the middle of an epoch. ---


def tell_damaged_data() -> None:
    """Checks the index and the length of binarized text before fairseq loads it."""
    make = indexed_dataset.make_dataset
    if getattr(make, "tells_damage", False):
        return

    @functools.wraps(make)
    def make_dataset(path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
        if impl != "raw" and indexed_dataset.IndexedDataset.exists(path):
            check_indexed_text(path, indexed_dataset._code_to_dtype)
        return make(path, impl, *args, **kwargs)

    make_dataset.tells_damage = True  # type: ignore[attr-defined]
    indexed_dataset.make_dataset = make_dataset


# --- Defect 18: --log-file is opened once more for every epoch, and each line is then written as often. ---


def log_each_line_once() -> None:
    """Lets ``--log-file`` hold each line once, in one open file, however many epochs there are.

    A file that was moved away or removed since is opened anew.
    """
    make = progress_bar.progress_bar
    if not _opens_again(make):
        return
    parameters = inspect.signature(make)

    @functools.wraps(make)
    def make_progress_bar(*args: Any, **kwargs: Any) -> Any:
        bound = parameters.bind(*args, **kwargs)
        if bound.arguments.get("log_file") is not None:
            path = os.path.abspath(bound.arguments["log_file"])
            for handler in list(progress_bar.logger.handlers):
                if not isinstance(handler, logging.FileHandler) or handler.baseFilename != path:
                    continue
                if _writes_to(handler, path):
                    bound.arguments["log_file"] = None
                else:
                    progress_bar.logger.removeHandler(handler)
                    handler.close()
        return make(*bound.args, **bound.kwargs)

    progress_bar.progress_bar = make_progress_bar


def _writes_to(handler: logging.FileHandler, path: str) -> bool:
    try:
        return handler.stream is not None and os.path.samestat(os.fstat(handler.stream.fileno()), os.stat(path))
    except OSError:
        return False


def _opens_again(make: Any) -> bool:
    logger: logging.Logger = progress_bar.logger
    before = list(logger.handlers)
    for _ in range(2):
        make([], log_format="none", log_file=os.devnull)
    added = [handler for handler in logger.handlers if handler not in before]
    for handler in added:
        logger.removeHandler(handler)
        handler.close()
    return len(added) > 1
