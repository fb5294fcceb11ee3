# Sourced by every check: proves that this is Nix's build sandbox, and makes a home. Nothing that follows may depend on the machine.
# shellcheck shell=bash
set -euo pipefail
interfaces=$(awk -F: 'NR > 2 { gsub(/ /, "", $1); print $1 }' /proc/net/dev)
if [ "$interfaces" != lo ] || [ -e /home ] || [ -e /root ]; then
  echo "error[not-in-nix-sandbox]: this check runs outside Nix's build sandbox (network: ${interfaces//$'\n'/, })" >&2
  echo "  do:    set sandbox = true and sandbox-fallback = false" >&2
  exit 1
fi
export HOME=$TMPDIR/home XDG_RUNTIME_DIR=$TMPDIR/run HERMEVAL_CACHE=$TMPDIR/cache XDG_STATE_HOME=$TMPDIR/state
mkdir -m 0700 -p "$HOME" "$XDG_RUNTIME_DIR" "$HERMEVAL_CACHE"
