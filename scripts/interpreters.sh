# Functions of the scripts beside this file: which Python, and which uv.

UV_VERSION=0.13.8

# The first interpreter among the arguments that runs and is at least 3.11.
find_python() {
  for candidate in "$@"; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  echo "setup: no Python >= 3.11 found; install one, or name it: make setup PYTHON=/path/to/python3" >&2
  return 1
}

# The interpreter of a release, such as 3.13, which pyenv or uv may have.
find_version() {
  find_python "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python 2>/dev/null || "$uv" python find "$1" 2>/dev/null
}

# A command line that runs uv: the one on PATH, else one of our own in .venv-uv.
find_uv() {
  if uv --version >/dev/null 2>&1; then
    echo uv
    return 0
  fi
  if ! .venv-uv/bin/uv --version >/dev/null 2>&1; then
    # Debian ships Python without the venv module; --target needs neither it nor a writable site-packages.
    if "$1" -m venv --clear .venv-uv >/dev/null 2>&1; then
      .venv-uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" >&2
    else
      rm -rf .venv-uv
      "$1" -m pip install --quiet --disable-pip-version-check --target .venv-uv "uv==$UV_VERSION" >&2
    fi
  fi
  echo .venv-uv/bin/uv
}
