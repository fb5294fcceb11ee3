# The runner's own Python packages: the locked wheels as a fixed output for each system and Python minor version, installed by a plain derivation.
#
# The same wheels stand behind `ci/hermeval`, so that nixpkgs' own versions never matter. The hashes are in wheels.json; ci/lock-wheels computes them anew.
{ pkgs, system }:
let
  minor = builtins.elemAt (builtins.split "\\." pkgs.python.pythonVersion) 2;
  hashes = builtins.fromJSON (builtins.readFile ./wheels.json);
  sitePackages = "lib/python${pkgs.python.pythonVersion}/site-packages";
  program = "${pkgs.python}/bin/python3";

  make =
    kind: requirements:
    let
      key = builtins.substring 0 16 (builtins.hashFile "sha256" requirements);
      wheels =
        pkgs.runCommand "hermeval-wheels-${kind}-${key}"
          {
            outputHashMode = "recursive";
            outputHashAlgo = "sha256";
            outputHash = hashes.${kind}.${system}.${minor};
            impureEnvVars = [
              "http_proxy"
              "https_proxy"
              "no_proxy"
              "HTTPS_PROXY"
              "NO_PROXY"
              "PIP_INDEX_URL"
            ];
            PIP_CERT = "${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt";
            requirements = builtins.path {
              path = requirements;
              name = "requirements.txt";
            };
          }
          ''
            export HOME=$TMPDIR/home
            source ${./download-wheels.sh}
            download_wheels ${program} ${pkgs.pip}/${sitePackages} "$requirements" ${system} ${minor} "$out"
          '';
    in
    {
      inherit wheels;
      # Some wheels of compiled code look for libstdc++ or libgcc_s where a distribution has them: those are told where to look. The others stay byte for byte as
      # they came: patching one that needs nothing has been seen to break it.
      site =
        pkgs.runCommand "hermeval-python-${kind}"
          {
            nativeBuildInputs = [ pkgs.patchelf ];
            SOURCE_DATE_EPOCH = "1";
            PYTHONHASHSEED = "0";
          }
          ''
            export HOME=$TMPDIR/home
            PYTHONPATH=${pkgs.pip}/${sitePackages} PYTHONNOUSERSITE=1 ${program} -m pip install \
              --quiet --disable-pip-version-check --no-input --no-cache-dir --no-index --no-deps --no-compile \
              --target "$out" ${wheels}/*.whl
            rm -rf "$out"/*.dist-info/direct_url.json "$out"/bin/__pycache__
            find "$out" -name '*.so' -o -name '*.so.*' | while read -r library; do
              if patchelf --print-needed "$library" | grep -q -e libstdc++ -e libgcc_s; then
                patchelf --add-rpath ${pkgs.cxx}/lib:${pkgs.glibc}/lib "$library"
              fi
            done
            ${program} -I -m compileall -q --invalidation-mode unchecked-hash "$out" >/dev/null || true
            for name in frozenlist._frozenlist pydantic_core._pydantic_core cryptography.hazmat.bindings._rust zstandard msgspec aiohttp; do
              PYTHONPATH=$out ${program} -P -c "import $name"
            done
          '';
    };
in
{
  inherit program minor sitePackages;
  runtime = make "runtime" ../ci/requirements.txt;
  test = make "test" ../ci/requirements-test.txt;
}
