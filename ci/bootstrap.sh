# Sourced by ci/hermeval and ci/test: sets up what is missing, then returns. No options, no output on the fast path.
#
# It makes, under one cache directory (root: /var/cache/hermeval, which the unprivileged run uid can read; others: ~/.cache/hermeval):
#   python-<digest>              a virtual environment from the hash-locked requirements
#   agent-<system>-<digest>      the npm tree with the Claude CLI and Node, checked against sandbox/toolchain/toolchain.json
#   exec/                        the execute-only copy of the CLI
# shellcheck shell=bash

set -euo pipefail
umask 022

# What every start does is done by bash itself where it can be: a process more is two milliseconds more.
root=$(cd -P -- "${BASH_SOURCE[0]%/*}/.." && pwd)
if [ -n "${HERMEVAL_CACHE:-}" ]; then
  cache=$HERMEVAL_CACHE
elif [ "$EUID" -eq 0 ]; then
  cache=/var/cache/hermeval
else
  cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/hermeval
fi
export HERMEVAL_CACHE=$cache
unset "${!PYTHON@}" # of the caller: one of them is enough to end Python before its first line, with a 1; PYTHONDONTWRITEBYTECODE makes every start compile for a second

json='' verb=''
for word; do # the caller's arguments: with --json an error is one object on stdout here too
  case $word in
    --json) json=1 ;;
    [a-z]*) [ -n "$verb" ] || verb=${word//[^a-z-]/} ;;
  esac
done

say() { printf 'hermeval: %s\n' "$*" >&2; }
die() { # CODE MESSAGE HINT
  printf 'error[%s]: %s\n  do:    %s\n' "$1" "$2" "$3" >&2
  [ -z "$json" ] || printf '{"schema_version": 1, "command": "%s", "exit_code": 2, "verdict": "error", "summary": {"passed": 0, "measured": 0, "started": 0}, "attempts": [], "results": [], "error": {"code": "%s", "message": "%s", "where": "set-up", "hint": "%s"}}\n' "$verb" "$1" "$(escape "$2")" "$(escape "$3")"
  exit 2
}
escape() { printf '%s' "$1" | LC_ALL=C tr -cd '\040-\176' | sed 's/[\\"]/\\&/g'; }

[ "$cache" != /.cache/hermeval ] || die home-missing "there is no place for the tools: HOME is not set." "set HOME, XDG_CACHE_HOME or HERMEVAL_CACHE"

case $OSTYPE-$HOSTTYPE in
  linux*-x86_64) system=x86_64-linux ;;
  linux*-aarch64) system=aarch64-linux ;;
  *) die system-unsupported "hermeval runs on Linux, x86_64 or aarch64; this is $(uname -sm)." "use such a machine" ;;
esac

# One sha256sum for all keys: this is on every start's path.
digests() {
  local digest
  sha256sum -- "$@" | while read -r digest _; do printf '%s\n' "${digest#\\}"; done
}

apt_install() { # PACKAGES for WHAT
  say "installing $* from Debian's packages"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@"; } >&2 </dev/null ||
    die package-install-failed "apt-get could not install: $*" "install it by hand and start again"
}

need_program() { # PROGRAM PACKAGE
  command -v "$1" >/dev/null 2>&1 && return 0
  if [ "$EUID" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt_install "$2"
  else
    die program-missing "$1 is not installed, and only root can install it." "ask an administrator for: apt-get install $2"
  fi
}

need_compiler() { # for the C parts of pinned runs (sandbox/determinism): for tests; a run that needs them says itself what is missing
  printf '#include <%s>\n' linux/seccomp.h pthread.h | cc -fsyntax-only -x c - 2>/dev/null && return 0
  if [ "$EUID" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt_install gcc libc6-dev
  else
    die program-missing "there is no C compiler with the C library's headers, and only root can install one." "ask an administrator for: apt-get install gcc libc6-dev"
  fi
}

find_python() {
  local candidate
  for candidate in "${HERMEVAL_PYTHON:-}" /usr/bin/python3 python3; do
    command -v "${candidate:-/nonexistent}" >/dev/null 2>&1 || continue
    if "$candidate" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$candidate
      return 0
    fi
  done
  die python-missing "no Python 3.11 or newer was found." "install python3 (Debian 12 or newer has it), or set HERMEVAL_PYTHON"
}

setup_python() { # REQUIREMENTS_FILE DIGEST
  venv=$cache/python-$system-${2:0:16}
  [ -e "$venv/.complete" ] && return 0
  find_python
  mkdir -p -- "$cache"
  exec 9>"$cache/.python.lock"
  flock 9
  if [ ! -e "$venv/.complete" ]; then
    rm -rf -- "$venv"
    say "making the Python environment (packages from the Python index, each checked against $(basename -- "$1"))"
    if ! "$python" -I -m venv "$venv" >/dev/null 2>&1; then
      rm -rf -- "$venv"
      [ "$EUID" -eq 0 ] && command -v apt-get >/dev/null 2>&1 && apt_install python3-venv
      "$python" -I -m venv "$venv" >&2 || {
        rm -rf -- "$venv"
        die python-venv-missing "$python cannot make a virtual environment." "apt-get install python3-venv"
      }
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: --no-deps \
      --require-hashes -r "$1" >&2 </dev/null ||
      die python-packages-failed "pip could not install the locked packages." "check the network and the index settings of pip, then start again"
    : >"$venv/.complete"
  fi
  exec 9>&-
}

setup_toolchain() { # KIND LOCK_DIGEST EXTRA_NPM_ARGS...
  local kind=$1 tree=$cache/$1-$system-${2:0:16} source=$root/sandbox/toolchain/$1/$system work
  shift 2
  [ -e "$tree/stamp.json" ] && return 0
  need_program npm npm
  mkdir -p -- "$cache"
  exec 9>"$cache/.$kind.lock"
  flock 9
  if [ ! -e "$tree/stamp.json" ]; then
    case $kind in
      agent) say "fetching the Claude CLI (proprietary, © Anthropic PBC, use is subject to Anthropic's Commercial Terms of Service) and Node (MIT) from the npm registry: about 200 MB, once" ;;
      grader) say "fetching Promptfoo (MIT) and Node (MIT) from the npm registry: about 100 MB, once" ;;
    esac
    rm -rf -- "$tree"
    work=$(mktemp -d -- "$cache/.$kind.XXXXXX")
    cp -- "$source/package.json" "$source/package-lock.json" "$source/.npmrc" "$work/"
    (cd -- "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error "$@" >&2 </dev/null) ||
      { rm -rf -- "$work"; die npm-failed "npm could not install the locked packages of $kind." "check the network and npm's registry setting, then start again"; }
    rm -f -- "$work/node_modules/.package-lock.json"
    chmod 0755 -- "$work"
    mv -T -- "$work" "$tree"
    run_python -m runner.toolchain_install "$kind" --cache "$cache" || { rm -rf -- "$tree"; exit 2; }
  fi
  exec 9>&-
}

run_python() {
  env PYTHONPATH="$root" PYTHONPYCACHEPREFIX="$cache/pycache" PYTHONNOUSERSITE=1 "$venv/bin/python" -P "$@"
}
