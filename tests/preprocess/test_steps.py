"""Steps: done once, done again when something changed, never half."""

import json

import pytest

from preprocess.files import InputError
from preprocess.steps import STAMP, run_step


class Builder:
    """Copies the input and counts how often."""

    def __init__(self, source):
        self.source = source
        self.runs = 0

    def __call__(self, folder):
        self.runs += 1
        (folder / "sub").mkdir()
        (folder / "sub" / "copy").write_bytes(self.source.read_bytes())


@pytest.fixture
def step(write, tmp_path):
    """Runs one step on the file x and returns whether it was done."""
    builder = Builder(write("x", "one"))

    def run(settings=None, **more):
        return run_step(tmp_path / "step", {"x": builder.source}, settings or {"limits": (1, 2)}, builder, **more)

    run.builder = builder
    run.folder = tmp_path / "step"
    return run


def test_a_finished_step_is_not_done_again(step, capsys):
    assert step() is True
    assert step() is False
    assert step.builder.runs == 1
    assert capsys.readouterr().out == "== step: not done yet\n== step: finished before\n"
    stamp = json.loads((step.folder / STAMP).read_text())
    assert list(stamp) == ["inputs", "outputs", "settings"]
    assert list(stamp["outputs"]) == ["sub/copy"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda step: step.builder.source.write_text("two"), "changed input: x"),
        (lambda step: (step.folder / "sub/copy").unlink(), "sub/copy is missing"),
        (lambda step: (step.folder / "sub/copy").write_text("eno"), "sub/copy was changed"),
        (lambda step: (step.folder / STAMP).unlink(), "not done yet"),
        (lambda step: (step.folder / STAMP).write_text("{"), "not done yet"),
    ],
)
def test_a_change_does_it_again(step, capsys, change, reason):
    step()
    change(step)
    assert step() is True
    assert step() is False
    assert f"== step: {reason}\n" in capsys.readouterr().out
    assert (step.folder / "sub/copy").read_bytes() == step.builder.source.read_bytes()


def test_settings_and_force(step, capsys):
    step()
    assert step({"limits": (1, 3), "more": True}) is True
    assert step({"limits": (1, 3), "more": True}, force=True) is True
    out = capsys.readouterr().out
    assert "changed setting: limits, more" in out
    assert "forced" in out


@pytest.mark.parametrize("stop", [InputError, KeyboardInterrupt])
def test_a_broken_step_leaves_the_old_folder_or_none(step, tmp_path, stop):
    def broken(folder):
        (folder / "half").write_text("half")
        raise stop("no")

    with pytest.raises(stop):
        run_step(step.folder, {}, {}, broken)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    step()
    with pytest.raises(stop):
        run_step(step.folder, {}, {}, broken)
    assert sorted(path.name for path in step.folder.rglob("*")) == ["copy", STAMP, "sub"]
    assert step() is False


def test_a_missing_input_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no such file: .*gone; run the earlier steps first"):
        run_step(tmp_path / "step", {"x": tmp_path / "gone"}, {}, lambda folder: None)
