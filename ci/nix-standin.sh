# Sourced by ci/nix-check and ci/nix-run: Nix with the stand-in for nixpkgs (tests/nix-standin), for a machine that has Debian's nix-bin and cannot reach nixpkgs.
#
# Store, state and settings of Nix lie below the cache directory, so that the store of the machine's own Nix, if any, is neither used nor changed. Sets `flake` and `standin`
# (options that replace the input; they imply that no lock file is written).
# shellcheck shell=bash
# shellcheck source=ci/bootstrap.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/bootstrap.sh"

case $root in
  *[!A-Za-z0-9/._+~-]*) die nix-checkout-path "Nix has no address for a checkout at $root." "put it at a path of letters, digits and / . _ + ~ - (Nix 2.8 does not read them in any other form)" ;;
esac
need_program nix nix-bin
need_program git git
need_program npm npm
need_program bwrap bubblewrap
need_compiler
need_program ssh-keygen openssh-client
if ! compgen -G '/usr/share/python-wheels/pip-*.whl' >/dev/null; then
  if [ "$EUID" -eq 0 ]; then apt_install python3-venv; else die program-missing "Debian's pip wheel is not installed." "ask an administrator for: apt-get install python3-venv"; fi
fi
if [ "$EUID" -eq 0 ] && ! getent group nixbld | grep -q ':.*:.*:.'; then
  die nix-build-users-missing "there is no group nixbld with users in it, and a build never runs as root." "install Debian's nix-bin, which makes them"
fi

state=${HERMEVAL_NIX_STATE:-$cache/nix}
mkdir -p -- "$state/conf" "$state/home"
chmod 0755 -- "$state"
export NIX_STORE_DIR=$state/store NIX_STATE_DIR=$state/var NIX_LOG_DIR=$state/log NIX_CONF_DIR=$state/conf NIX_REMOTE=local
export NIX_USER_CONF_FILES='' NIX_CONFIG='' XDG_CACHE_HOME=$state/home
unset NIX_PATH
# At the end of a build Nix kills every process of its build user. Which user is free is known by locks in the state directory, so this one shares the locks of the machine's own.
if [ "$EUID" -eq 0 ]; then
  mkdir -p -- "$state/var"
  for pool in userpool userpool2; do
    mkdir -p -- "/nix/var/nix/$pool"
    if [ ! -L "$state/var/$pool" ]; then
      rm -rf -- "${state:?}/var/$pool"
      ln -s -- "/nix/var/nix/$pool" "$state/var/$pool"
    fi
  done
fi

# The programs of the stand-in are the host's own, so builds see where those lie.
paths=
for path in /bin /usr /lib /lib64 /etc/ssl /etc/resolv.conf /etc/alternatives; do
  if [ -e "$path" ]; then paths+=" $path"; fi
done
users=
if [ "$EUID" -eq 0 ]; then users=nixbld; fi
cat >"$state/conf/.nix.conf.$$" <<END
experimental-features = nix-command flakes
sandbox = true
sandbox-fallback = false
build-users-group = $users
substituters =
flake-registry =
warn-dirty = false
extra-sandbox-paths =$paths
END
mv -f -- "$state/conf/.nix.conf.$$" "$state/conf/nix.conf"

# The stand-in says Python 3.11; a machine with another one says so in a copy.
standin_at=$root/tests/nix-standin
minor=$(/usr/bin/python3 -I -c 'import sys; print("3.%d" % sys.version_info.minor)') ||
  die python-missing "/usr/bin/python3 is missing." "apt-get install python3"
if [ "$minor" != 3.11 ]; then
  mkdir -p -- "$state/standin"
  cp -- "$standin_at/flake.nix" "$state/standin/"
  printf '%s\n' "$minor" >"$state/standin/python-version"
  standin_at=$state/standin
fi
standin=(--override-input nixpkgs "path:$standin_at")

if [ -e "$root/.git" ]; then
  flake="git+file://$root?shallow=1"
  # The checkout may belong to somebody else.
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$root
else
  flake="path:$root"
fi

# A tree that lies in the toolchain cache already is put into the store as it is: the path of a fixed output depends on its bytes alone, so a tree with other bytes
# than the lock's would simply not be found.
seed() { # KIND
  local key tree=
  key=$(sha256sum <"$root/sandbox/toolchain/$1/$system/package-lock.json" | cut -c1-16)
  tree=$cache/$1-$system-$key
  if [ -e "$tree/stamp.json" ] && ! compgen -G "$NIX_STORE_DIR/*-hermeval-$1-$key" >/dev/null; then
    say "putting the cached tree of $1 into the store"
    nix store add-path --name "hermeval-$1-$key" "$tree/node_modules" >/dev/null
  fi
}
if [ -z "${HERMEVAL_NIX_NO_SEED:-}" ]; then
  seed agent
  seed grader
fi
