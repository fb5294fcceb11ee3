# The pinned npm trees: fixed outputs with the very NAR hashes that ci/bootstrap.sh gets without Nix (sandbox/toolchain/toolchain.json).
#
# Nothing may touch an output after npm: no fixup, no patching, no stripping. The CLI is proprietary (© Anthropic PBC): keep it out of public binary caches.
# An output is named after its lock file, so that a changed lock with a forgotten hash is built, and refused, instead of being found in the store.
{ pkgs, system }:
let
  lock = builtins.fromJSON (builtins.readFile ../sandbox/toolchain/toolchain.json);
  tree =
    kind: options:
    let
      source = ../sandbox/toolchain + "/${kind}/${system}";
      key = builtins.substring 0 16 (builtins.hashFile "sha256" (source + "/package-lock.json"));
    in
    pkgs.runCommand "hermeval-${kind}-${key}"
      {
        nativeBuildInputs = [ pkgs.nodejs ];
        outputHashMode = "recursive";
        outputHashAlgo = "sha256";
        outputHash = lock.systems.${system}.${kind}.nar_sha256;
        impureEnvVars = [
          "http_proxy"
          "https_proxy"
          "no_proxy"
          "HTTPS_PROXY"
          "NO_PROXY"
        ];
        NODE_EXTRA_CA_CERTS = "${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt";
        source = builtins.path {
          path = source;
          name = "hermeval-${kind}-lock";
        };
      }
      ''
        export HOME=$TMPDIR/home npm_config_cache=$TMPDIR/npm
        mkdir -p "$HOME"
        : >"$HOME/user"
        : >"$HOME/global"
        cp "$source/package.json" "$source/package-lock.json" "$source/.npmrc" .
        npm ci --ignore-scripts --no-audit --no-fund --no-progress --loglevel=error ${options} \
          --cafile="$NODE_EXTRA_CA_CERTS" --userconfig="$HOME/user" --globalconfig="$HOME/global" </dev/null
        rm -f node_modules/.package-lock.json
        mv node_modules "$out"
      '';
in
{
  inherit lock;
  agent = tree "agent" "";
  grader = tree "grader" "--omit=optional";
}
