# Downloads the locked wheels of one system and Python minor version: nix/python.nix (in a build) and ci/lock-wheels (to compute the hash) both source this.
#
#   download_wheels PYTHON PIP_PATH REQUIREMENTS SYSTEM MINOR DIRECTORY
#
# Nothing but a download: no resolver decision (--no-deps), no source package, every file's sha256 from the requirements. The platform is named in full,
# newest C library first, so that the same files come whatever machine asks.
# shellcheck shell=bash
download_wheels() {
  local python=$1 pip_path=$2 requirements=$3 system=$4 minor=$5 directory=$6 machine number
  local -a platforms=()
  machine=${system%-linux}
  for number in {34..5}; do
    platforms+=(--platform "manylinux_2_${number}_$machine")
    case $number in
      17) platforms+=(--platform "manylinux2014_$machine") ;;
      12) platforms+=(--platform "manylinux2010_$machine") ;;
      5) platforms+=(--platform "manylinux1_$machine") ;;
    esac
  done
  mkdir -p -- "$directory"
  PYTHONPATH=$pip_path PIP_CONFIG_FILE=/dev/null PYTHONNOUSERSITE=1 "$python" -m pip download \
    --quiet --disable-pip-version-check --no-input --no-cache-dir \
    --only-binary :all: --no-deps --require-hashes \
    --implementation cp --python-version "3.$minor" --abi "cp3$minor" --abi abi3 --abi none "${platforms[@]}" \
    --dest "$directory" --requirement "$requirements" </dev/null
}
