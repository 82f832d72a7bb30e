#!/bin/sh
# Builds the wheel into dist/ and tries it in a fresh environment, outside of the checkout.
set -eu
cd "$(dirname "$0")/.."

uv=$(pwd)/.venv/bin/uv
environment=$(pwd)/build/wheel-environment

rm -rf dist build/lib build/bdist.* "$environment"
"$uv" build --quiet --wheel --no-build-isolation --python .venv/bin/python --out-dir dist
wheel=$(ls "$(pwd)"/dist/*.whl)
echo "built ${wheel##*/}"

"$uv" venv --quiet --python .venv/bin/python "$environment"
# The versions that the tests run with; hashes are for lists of requirements, not for constraints.
sed -e 's/ *\\$//' -e '/^ *--hash/d' requirements/dev.txt >build/constraints.txt
"$uv" pip install --quiet --python "$environment/bin/python" --constraint build/constraints.txt "$wheel"

tried=$(mktemp -d)
trap 'rm -rf "$tried"' EXIT
cd "$tried"
cat >model.py <<'END'
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


def make():
    return nn.Sequential(Block(), Block()), torch.randn(2, 8)
END
cat >tried.py <<'END'
from pathlib import Path

import skipscope
import skipscope as ss

assert "wheel-environment" in skipscope.__file__, skipscope.__file__
assert all(hasattr(ss, name) for name in ss.__all__)
assert ss.plot.scree is not None  # templates of figures
result = ss.inspect(*__import__("model").make(), budget="5s")
assert Path(result.report("run")).stat().st_size > 100_000  # templates of reports
END
"$environment/bin/skipscope" --help >help.txt
"$environment/bin/skipscope" units model.py:make
"$environment/bin/skipscope" study list >studies.txt
"$environment/bin/python" tried.py
echo "the wheel works: import, --help, units, study list, a report"
