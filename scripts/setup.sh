#!/bin/sh
# Makes .venv with the pinned requirements and this project in it; does nothing when nothing changed.
set -eu
cd "$(dirname "$0")/.."

python=.venv/bin/python
stamp=.venv/.stamp
recent='import sys; sys.exit(sys.version_info < (3, 11))'

# The path is part of the key: scripts in a virtual environment that was moved point to where it was made.
key() {
    echo "$(cat pyproject.toml requirements/uv.txt requirements/dev.txt | cksum) $("$python" --version) $(pwd)"
}

find_python() {
    found=
    for candidate in python3 python3.12 python3.11 python3.13 python; do
        "$candidate" -c "$recent" 2>/dev/null || continue
        found=$candidate
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    if [ -n "$found" ]; then
        echo "error: $found has no venv module: install it (on Debian and Ubuntu the package python3-venv)" >&2
    else
        echo "error: no Python 3.11 or newer found: install one and make sure that it is on PATH" >&2
    fi
    return 1
}

# uv is quicker and pip is everywhere; pip also reads a mirror's settings that uv does not know of.
install() {
    .venv/bin/uv pip install --quiet --compile-bytecode --python "$python" "$@" || "$python" -m pip install --quiet "$@"
}

if "$python" -c "$recent" 2>/dev/null; then
    if [ "$(cat "$stamp" 2>/dev/null)" = "$(key)" ]; then
        exit 0
    fi
else
    creator=$(find_python)
    "$creator" -m venv --clear .venv
fi

rm -f "$stamp"
echo "installing the requirements into .venv (once; the first time this downloads PyTorch)" >&2
"$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
install --require-hashes -r requirements/dev.txt
install --no-build-isolation --no-deps --editable .
key >"$stamp"
