# What `nix flake check` proves, each in the build sandbox of its own derivation, offline.
{
  pkgs,
  system,
  toolchain,
  program,
  python,
  ...
}:
let
  hermeval = "${program.hermeval}/bin/hermeval";

  # The surroundings are proved, not assumed: a check that ran outside Nix's sandbox would prove nothing (sandbox-fallback is on by default).
  check =
    name: environment: script:
    pkgs.runCommand "hermeval-check-${name}" environment ''
      source ${./surroundings.sh}
      ${script}
      touch $out
    '';

  attempts = ../fixtures/attempts;
  expected =
    if builtins.pathExists (attempts + "/expected.json") then
      (builtins.fromJSON (builtins.readFile (attempts + "/expected.json"))).attempts
    else
      { };
  # One derivation for each attempt named in expected.json, and the file alone in it.
  each =
    verb: words:
    builtins.listToAttrs (
      map (
        name:
        let
          file = builtins.path {
            path = attempts + "/${name}";
            name = name;
          };
        in
        {
          name = "${verb}-${builtins.replaceStrings [ ".attempt" ] [ "" ] name}";
          value = check verb { } (words file expected.${name});
        }
      ) (builtins.attrNames expected)
    );
  tests = import ./source.nix [
    "runner"
    "sandbox"
    "profiles"
    "fixtures"
    "tests"
    "ci"
    "nix"
    "docs"
    "pyproject.toml"
    "flake.nix"
    "flake.lock"
    "README.md"
    "CHANGELOG.md"
    "LICENSE"
    "NOTICE"
  ];
  testing = {
    PYTHONDONTWRITEBYTECODE = "1";
  };
  inTests = ''
    cp -r ${tests} $TMPDIR/checkout
    chmod -R u+w $TMPDIR/checkout
    cp ${program.pins} $TMPDIR/checkout/sandbox/toolchain/pins.json
    cd $TMPDIR/checkout
    export PYTHONPATH=$TMPDIR/checkout:${python.test.site}
  '';
in
{
  run = check "run" { } ''
    ${hermeval} run missing-account --json --out $TMPDIR/attempts | tee $TMPDIR/answer.json
    ${python.program} -I ${./check_run.py} $TMPDIR/answer.json
    ${hermeval} verify $TMPDIR/attempts/*.attempt
  '';

  containment = check "containment" { } ''
    ${hermeval} doctor
  '';

  toolchain = check "toolchain" { } ''
    ${hermeval} toolchain verify
  '';

  lint = check "lint" testing ''
    ${inTests}
    ${program.ruff}/bin/ruff check --no-cache .
    ${program.ruff}/bin/ruff format --no-cache --check .
    ${python.program} -P -c 'import sys; from importlinter.cli import lint_imports_command; lint_imports_command()' --no-cache
  '';

  types = check "types" testing ''
    ${inTests}
    ${python.program} -P -m mypy --cache-dir=$TMPDIR/mypy
  '';

  unit = check "unit" testing ''
    ${inTests}
    ${python.program} -P -m pytest -p no:cacheprovider --basetemp=$TMPDIR/t -q -m 'not nix and not bench'
  '';
}
// each "replay" (file: word: "")
// each "reproduce" (file: word: "")
