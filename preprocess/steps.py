"""Steps that are done once: a folder each, with a stamp of what it was made from.

A step is done again when one of its inputs (by content), one of its settings or one of its outputs is not what the
stamp says. The folder, stamp included, appears whole or not at all, so a broken step leaves the old folder, or none.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

from preprocess.files import InputError, build_folder, write_whole

STAMP = "stamp.json"


def fingerprint(path: Path) -> str:
    """The SHA-256 of a file.

    Raises:
        InputError: it is missing.
    """
    if not path.is_file():
        raise InputError(f"no such file: {path}; run the earlier steps first, or check the path")
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def read_stamp(folder: Path) -> Optional[Dict[str, Any]]:
    """The stamp of a finished step, or None."""
    try:
        return json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def reason_to_run(folder: Path, inputs: Mapping[str, str], settings: Mapping[str, Any]) -> Optional[str]:
    """Why a step has to be done, in words, or None if it is finished.

    Args:
        folder: the step's folder.
        inputs: the fingerprint of each input.
        settings: what else decides about the output.
    """
    stamp = read_stamp(folder)
    if stamp is None:
        return "not done yet"
    for kind, now in (("input", inputs), ("setting", settings)):
        then = stamp.get(f"{kind}s", {})
        changed = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        if changed:
            return f"changed {kind}: {', '.join(changed)}"
    for name, digest in stamp.get("outputs", {}).items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if fingerprint(folder / name) != digest:
            return f"{name} was changed"
    return None


def run_step(
    folder: Path,
    inputs: Mapping[str, Path],
    settings: Mapping[str, Any],
    build: Callable[[Path], None],
    force: bool = False,
) -> bool:
    """Does a step unless it is finished.

    Args:
        folder: where its files go; its name is the step's.
        inputs: the files it reads, under names that stay when the corpus moves.
        settings: whatever else decides about the output; plain JSON values.
        build: fills the (empty) folder it is given.
        force: do it even if it is finished.

    Returns:
        Whether it was done now.

    Raises:
        InputError: an input is missing, or ``build`` refuses.
    """
    settings = json.loads(json.dumps(settings))  # as it will be read back: tuples become lists
    digests = {name: fingerprint(path) for name, path in inputs.items()}
    reason = "forced" if force else reason_to_run(folder, digests, settings)
    if reason is None:
        print(f"== {folder.name}: finished before")
        return False
    print(f"== {folder.name}: {reason}")
    with build_folder(folder) as partial:
        build(partial)
        made = sorted(path for path in partial.rglob("*") if path.is_file())
        outputs = {path.relative_to(partial).as_posix(): fingerprint(path) for path in made}
        with write_whole(partial / STAMP) as handle:
            stamp = {"inputs": digests, "settings": settings, "outputs": outputs}
            handle.write(json.dumps(stamp, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return True
