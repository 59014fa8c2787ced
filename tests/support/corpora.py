"""Parallel text for the recipes' tests."""

import importlib.util
import os
import random
import subprocess
import sys


def write_corpus(write, sets, languages, size=12):
    """Random text of 30 words a language, the target a word-by-word translation; returns its folder."""
    generator = random.Random(3)
    for name in sets:
        lines = [[generator.randrange(30) for _ in range(generator.randint(2, 9))] for _ in range(size)]
        for language in languages:
            text = "".join(
                " ".join(f"{language}{'abcdefghij'[word % 10]}{'xyz'[word // 10]}" for word in line) + ".\n"
                for line in lines
            )
            path = write(f"corpus/{name}.{language}", text)
    return path.parent


def run_recipe(root, folder, work, *arguments, **settings):
    """Runs a recipe from another folder, the environment's own settings left out."""
    ours = ("CORPUS", "SYSTEM", "RANK", "START", "SCHEDULE")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment.update({"PYTHON": sys.executable, "WORK": str(work / "work"), "CPU": "1", **settings})
    command = ["bash", str(root / "examples" / folder / "run.sh"), *map(str, arguments)]
    return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)


def load_script(root, name):
    """A script of examples/, which is no package, as a module."""
    path = root / "examples" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
