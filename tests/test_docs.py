"""The code of the guides, as it stands there."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.processes import pwc_here, run_python


@pytest.mark.parametrize("guide", ["README.md", "docs/programs.md"])
def test_guides_run(guide: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (root / guide).read_text(), re.S))
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    if (tmp_path / "plan.bin").exists():
        code, _, stderr = pwc_here("run", "plan.bin", "--inputs", "in.npz", "--outputs", "out.npz")
        assert code == 0, stderr
        with np.load("out.npz") as out:
            assert out["out[0]"].shape == (4, 8) and np.isfinite(out["out[1]"])
