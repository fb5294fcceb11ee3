"""What is installed beside hermeval has no say in what it reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_plugin_has_a_say_in_how_models_are_read(tmp_path: Path) -> None:
    """A pydantic plugin that lies on the path is not even imported by a command; a program of one's own does import it (the control)."""
    (tmp_path / "nosy.py").write_text("import sys\nsys.stderr.write('plugin loaded')\nplugin = None\n")
    info = tmp_path / "nosy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nosy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pydantic]\nnosy = nosy:plugin\n")
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}

    def said(*words: str) -> str:
        argv = [sys.executable, "-P", *words]
        done = subprocess.run(argv, env=environ, cwd="/", capture_output=True, text=True, check=False, timeout=60)
        return done.stderr

    assert "plugin loaded" in said("-c", "from runner.fixture import parse_fixture; parse_fixture(b'{}', 'x')")
    refused = said("-m", "runner.cli", "show", str(ROOT / "fixtures" / "attempts" / "negative-control.attempt"))
    assert "plugin loaded" not in refused
    (tmp_path / "x.json").write_text("{}")
    refused = said("-m", "runner.cli", "run", "--prepare-only", str(tmp_path / "x.json"))
    assert "error[fixture-invalid]" in refused
    assert "plugin loaded" not in refused
