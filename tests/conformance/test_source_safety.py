"""Nothing in the source and the scripts runs input or writes where others may, and what recipes fetch is checked."""

import ast
import hashlib
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT


def offences(tree):
    """Calls in a module's syntax tree that could run input, and names in shared folders."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"/(var/)?tmp\b", node.value):
            found.append("a name in /tmp")
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name in ("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec"):
            found.append(name)
        if name in ("os.system", "os.popen", "tempfile.mktemp", "yaml.load", "yaml.unsafe_load", "marshal.loads"):
            found.append(name)
        if re.fullmatch(r"(c?[pP]ickle|dill|joblib|shelve)\.(load|loads|open|Unpickler)", name):
            found.append(name)
        if name == "torch.load" and given.get("weights_only") != "True":
            found.append("torch.load without weights_only=True")
        if name in ("np.load", "numpy.load") and given.get("allow_pickle") != "False":
            found.append("np.load without allow_pickle=False")
        if given.get("shell", "False") != "False":
            found.append("shell=True")
        if name.endswith((".extractall", ".extract")) and "filter" not in given:
            found.append(f"{name} without filter")
        rights = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, int)]
        if name in ("os.chmod", "os.mkdir", "os.makedirs") and any(word & 0o002 for word in rights):
            found.append(f"{name} for all to write")
    return found


FOLDERS = ("informer_fairseq", "preprocess", "examples", "benchmarks")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
SCRIPTS = [path for folder in ("examples", "preprocess") for path in (ROOT / folder).rglob("*.sh")]
SCRIPTS += [ROOT / "install.sh", ROOT / "Makefile", ROOT / ".ci/run"]


def test_the_source_runs_no_input():
    assert len(SOURCES) > 80
    found = {str(path): offences(ast.parse(path.read_text(encoding="utf-8"))) for path in [*SOURCES, ROOT / "setup.py"]}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "line",
    [
        "eval(x)",
        "exec(x)",
        "os.system(x)",
        "subprocess.run(x, shell=True)",
        "pickle.load(f)",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f)",
        "yaml.load(f)",
        "tempfile.mktemp()",
        "archive.extractall(folder)",
        "open('/tmp/cache')",
        "os.chmod(path, 0o777)",
        "__import__(name)",
    ],
)
def test_the_walk_finds_each_kind(line):
    assert len(offences(ast.parse(line))) == 1


OFFENCES_IN_SHELL = {
    "eval": r"(^|[;&|(]\s*|\s)eval\s",
    "a name in /tmp": r"(^|[\s\"'=])/(var/)?tmp\b",
    "a download into a shell": r"(curl|wget)[^\n]*\|\s*(ba)?sh\b",
    "for all to write": r"chmod\s+(-R\s+)?(0?[0-7]{2}[2367]\b|[ao]*\+w|a\+rwx|o\+w)",
    "a guessable name": r"mktemp\s+-u",
    "unchecked certificate": r"--insecure|\bcurl\s+-k\b|--no-check-certificate",
}


def offences_in_shell(text):
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [name for name, pattern in OFFENCES_IN_SHELL.items() if any(re.search(pattern, line) for line in lines)]


def test_the_scripts_run_no_input_and_fetch_only_with_a_check():
    assert len(SCRIPTS) > 9
    found = {str(path): offences_in_shell(path.read_text(encoding="utf-8")) for path in SCRIPTS}
    assert {path: what for path, what in found.items() if what} == {}
    assert [path.name for path in SCRIPTS if re.search(r"\b(curl|wget)\b", path.read_text())] == ["recipe.sh"]


@pytest.mark.parametrize(
    "line",
    ['eval "$x"', "cat >/dev/null; touch /tmp/a", "curl x | sh", "chmod 777 a", "mktemp -u", "curl --insecure x"],
)
def test_the_walk_over_scripts_finds_each_kind(line):
    assert len(offences_in_shell(line)) == 1


# ----------------------------------------------------------------------------------------------------- downloads


@pytest.fixture
def fetch(tmp_path):
    """Runs ``fetch_checked`` of the recipes on a file:// address; returns (status, output)."""

    def run(url, file, sums):
        (tmp_path / "sums").write_text(sums)
        script = f'HERE={ROOT}/examples/quickstart; source "{ROOT}/examples/recipe.sh"; fetch_checked "$1" "$2"'
        variables = {**os.environ, "PYTHON": sys.executable, "CHECKSUMS": str(tmp_path / "sums")}
        command = ["bash", "-euo", "pipefail", "-c", script, "fetch", url, str(file)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_downloads_are_checked(fetch, tmp_path):
    source, target = tmp_path / "source.txt", tmp_path / "corpus/file.txt"
    source.write_text("one\n")
    url = f"file://{source}"
    right = hashlib.sha256(b"one\n").hexdigest()
    status, output = fetch(url, target, f"{'0' * 64}  {url}\n")  # pinned, and wrong
    assert status == 2 and f"has SHA-256 {right}, not the pinned {'0' * 64}: cut, or changed" in output
    assert not target.exists()
    assert fetch(url, target, f"{right}  {url}\n")[0] == 0 and target.read_text() == "one\n"  # pinned, and right
    assert not (target.parent / "SHA256SUMS").exists()
    target.write_text("changed\n")  # checked again where it is there already
    assert fetch(url, target, f"{right}  {url}\n")[0] == 2

    target.unlink()
    status, output = fetch(url, target, "")  # not pinned: held to its first download
    assert status == 0 and "no checksum is known of file.txt" in output
    source.write_text("two\n")
    target.unlink()
    status, output = fetch(url, target, "")
    assert status == 2 and f"not, as when it was first fetched, {right}" in output
    assert not target.exists()


def test_what_is_pinned():
    lines = (ROOT / "examples/checksums.sha256").read_text().splitlines()
    pinned = dict(line.split("  ")[::-1] for line in lines if not line.startswith("#"))
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in pinned.values())
    page = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/"
    recipe = (ROOT / "examples/iwslt15_en_vi/run.sh").read_text()
    fetched = set(re.findall(r"fetch (\S+\.\w\w) ", recipe))
    assert {url.removeprefix(page) for url in pinned if url.startswith(page)} == fetched and len(fetched) == 8
    archives = re.findall(r"wmt\d+/\S+\.t\w+", (ROOT / "examples/wmt14_en_de/run.sh").read_text())
    assert len(archives) == 3 and all(f"https://www.statmt.org/{archive}" in pinned for archive in archives)
