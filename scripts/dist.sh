#!/bin/sh
# Builds the wheel and the source distribution into dist/, and tries them as a user would, on each Python that is here.
#
#   scripts/dist.sh             on those of 3.11, 3.12 and 3.13 that are installed
#   scripts/dist.sh 3.12 3.13   on these, which have to be
#
# The wheel is installed with each extra (EXTRAS='none sql' chooses) into an environment of its own, in a folder without a checkout
# above it, and scripts/dist_trial.py runs there; the last Python also installs from the source distribution.
set -eu
cd "$(dirname "$0")/.."

. scripts/interpreters.sh

python=$(find_python .venv/bin/python ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3)
uv=$(find_uv "$python")
export UV_PYTHON_DOWNLOADS=never

rm -rf dist
"$uv" build --quiet --python "$python" --out-dir dist
"$uv" tool run --quiet --python "$python" twine check --strict dist/*
"$python" scripts/dist_contents.py dist

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$PWD

# try_in PYTHON NAME WHAT: for each extra, an environment with what was built, and scripts/dist_trial.py run by it.
try_in() {
  for extra in $extras; do
    rm -rf "$work/env" "$work/table"
    "$uv" venv --quiet --python "$1" "$work/env"
    bracket="[$extra]"
    [ "$extra" = none ] && bracket=
    "$uv" pip install --quiet --python "$work/env/bin/python" "pyhudi$bracket @ file://$3"
    (cd "$work" && env/bin/python -I "$root/scripts/dist_trial.py" "$extra" "$work/table") || {
      echo "dist: the trial of extra $extra failed on $2" >&2
      exit 1
    }
  done
}

extras=${EXTRAS:-$("$python" - <<'PY'
import pathlib, tomllib
print("none", *tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["optional-dependencies"])
PY
)}
tried=
for version in "${@:-3.11 3.12 3.13}"; do
  for one in $version; do
    if interpreter=$(find_version "$one"); then
      try_in "$interpreter" "Python $one" "$(ls "$root"/dist/*.whl)"
      tried=$one last=$interpreter
    elif [ $# -gt 0 ]; then
      echo "dist: no Python $one is installed here" >&2
      exit 1
    else
      echo "dist: no Python $one is installed here; not tried on it" >&2
    fi
  done
done
[ -n "$tried" ] || { echo "dist: tried on no Python" >&2; exit 1; }
extras=cli
try_in "$last" "Python $tried, from the source distribution" "$(ls "$root"/dist/*.tar.gz)"
ls -l dist
