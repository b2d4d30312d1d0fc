# Sourced by deploy/demo and deploy/test: a virtual environment in the checkout, made on the first run and quick to
# find again. All that it needs is a python3 of 3.11 or later.

unset PYTHONHOME PYTHONPATH VIRTUAL_ENV
# Without its compiled modules each of the many processes that the tests start compiles all of Wayside anew.
unset PYTHONDONTWRITEBYTECODE
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv

say() { printf '%s\n' "$*" >&2; }
give_up() { say "$@"; exit 1; }

# Run a command as root: directly, or by sudo where that asks for no password. Status 126: neither is possible.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
  else return 126
  fi
}

# Install Debian packages; when that is not possible, stop and say what to do.
install_packages() {
  local why=$1; shift
  say "Installing $* ($why) ..."
  command -v apt-get >/dev/null || give_up "There is no apt-get here. Please install by hand: $* ($why)."
  { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"
  } </dev/null >&2 || give_up "That did not work. Please run as root: apt-get update && apt-get install $*"
}

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (4,))' 2>/dev/null; }

# Print the interpreter to use: python3 if it is new enough, else the newest python3.N on the PATH that is.
find_python() {
  local name
  for name in ${WAYSIDE_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null && supported "$name"; then command -v "$name"; return; fi
  done
  give_up "Wayside needs Python 3.11 or later; found: $(python3 --version 2>&1 || true)." \
    "Install one and put it on the PATH as python3 or python3.11, or name it in WAYSIDE_PYTHON."
}

make_environment() {
  local python=$1 version
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    install_packages "for virtual environments" "python$version-venv"
  fi
  say "Making a virtual environment in .venv with $("$python" --version) ..."
  "$python" -m venv --clear "$VENV"
}

# Make .venv, unless it is there. The stamp names what it was made from, so that a moved checkout sets it up again.
have_environment() {
  local python home
  python=$(find_python) || exit 1
  home="$ROOT $("$python" -c 'import sys; print(sys.base_prefix, sys.version)' | tr '\n' ' ')"
  if ! [ -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -c '' 2>/dev/null ||
    [ "$(cat "$VENV/made-from" 2>/dev/null)" != "$home" ]; then
    make_environment "$python"
    printf '%s' "$home" >"$VENV/made-from"
  fi
}

# Make .venv hold this checkout with the extra $1 (or none), unless a stamp says that it does: one of pyproject.toml.
# What follows $1 goes to pip.
set_up() {
  local extra=${1:-} stamp
  have_environment
  stamp=$(cksum <"$ROOT/pyproject.toml")
  if [ "$(cat "$VENV/holds-$extra" 2>/dev/null)" != "$stamp" ]; then
    say "Installing Wayside and what it needs into .venv (the first time takes a minute) ..."
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}" --editable "$ROOT${extra:+[$extra]}" ||
      give_up "pip could not install Wayside; what it said is above."
    printf '%s' "$stamp" >"$VENV/holds-"
    printf '%s' "$stamp" >"$VENV/holds-$extra"
  fi
}
