"""The harness of benchmarks/: every job that is quick runs to its end and says what the code promises."""

import json

from benchmarks import run


def test_small_shapes_on_cpu(tmp_path, capsys):
    """As ``run.py --device cpu --small``: JSON, tables and plot of every system, and no limits."""
    files = [tmp_path / name for name in ("figures.json", "tables.md", "encoders.svg")]
    outputs = [word for flag, path in zip(("--json", "--markdown", "--plot"), files) for word in (flag, str(path))]
    run.main(["--device", "cpu", "--small", "--threads", "1", "--rounds", "1", "--jobs", "encoder", *outputs])
    figures = json.loads(files[0].read_text())
    assert "0 of 0 promised figures held" in capsys.readouterr().out
    rows = [row for row in figures["rows"] if row["job"].startswith("Encoder layers")]
    systems = {row["setting"]: [one["system"] for one in rows if one["setting"] == row["setting"]] for row in rows}
    low_rank = ["transformer", "linformer_mt", "conv_linformer_mt"]
    cheap = ["informer_mt", "linformer_informer_mt"]
    assert [found[:5] for found in systems.values()] == [
        low_rank + cheap,
        low_rank + cheap,
        low_rank + [f"{arch}, groups of 200" for arch in cheap],
    ]
    assert all(row["figure"] > 0 for row in figures["rows"])
    assert files[1].read_text().count("| transformer |") == 2 * len(systems)
    assert "</svg>" in files[2].read_text()
