"""The code of the guides, as it stands there."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
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
            w, x, y = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32), np.ones(8, np.float32)
            value, gradient = jax.value_and_grad(lambda w: ((jnp.tanh(x @ w).sum(-1) - y) ** 2).mean())(w)
            np.testing.assert_allclose(out["out[1]"], value, rtol=1e-6)
            np.testing.assert_allclose(out["out[0]"], w - 0.1 * gradient, rtol=1e-6)
