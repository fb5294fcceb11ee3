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

  # One derivation for each attempt that expected.json names, with that file alone in it: what is added or changed later builds nothing else anew.
  attempts = ../fixtures/attempts;
  expected = (builtins.fromJSON (builtins.readFile (attempts + "/expected.json"))).attempts;
  each =
    verb: options: words:
    builtins.listToAttrs (
      map (
        file:
        let
          name = "${verb}-${builtins.replaceStrings [ ".attempt" ] [ "" ] file}";
          wanted = words expected.${file}.${verb};
        in
        {
          inherit name;
          value = check name { } ''
            status=0
            ${hermeval} ${verb} --json ${options} ${attempts + "/${file}"} >$TMPDIR/answer.json || status=$?
            echo "exit status $status, wanted: ${wanted}"
            ${judge} $TMPDIR/answer.json ${verb} ${wanted}
          '';
        }
      ) (builtins.attrNames expected)
    );
  judge = "${python.program} -I ${./judge_answer.py}";
  rooms = builtins.fromJSON (builtins.readFile ./rooms.json);
  present = builtins.filter (name: name != "expected.json") (
    builtins.attrNames (builtins.readDir attempts)
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
  # A checkout, and an environment whose interpreter finds the packages by itself: tests start it anew.
  inTests = ''
    cp -r ${tests} $TMPDIR/checkout
    chmod -R u+w $TMPDIR/checkout
    rm -rf $TMPDIR/checkout/fixtures/attempts
    cp -r ${attempts} $TMPDIR/checkout/fixtures/attempts
    chmod -R u+w $TMPDIR/checkout/fixtures/attempts
    cd $TMPDIR/checkout
    ${python.program} -I -m venv --without-pip $TMPDIR/venv
    echo ${python.test.site} >$TMPDIR/venv/${python.sitePackages}/packages.pth
    export PYTHONPATH=$TMPDIR/checkout PYTHONDONTWRITEBYTECODE=1
    python=$TMPDIR/venv/bin/python
  '';
in
{
  run = check "run" { } ''
    ${hermeval} run missing-account --json --out $TMPDIR/attempts >$TMPDIR/answer.json
    ${judge} $TMPDIR/answer.json run
    ${hermeval} verify $TMPDIR/attempts/*.attempt
  '';

  containment = check "containment" { } ''
    ${hermeval} doctor --full
    ${hermeval} doctor --probes --json >$TMPDIR/probes.json || echo "exit status $?: see which"
    ${judge} $TMPDIR/probes.json probes 8,76
  '';

  # Clock, random bytes and kernel can be pinned here too: a run done twice makes the same requests.
  pinned = check "pinned" { } ''
    ${hermeval} doctor --pinned
  '';

  # A machine whose builds can make no namespace: replay goes on, because Nix's sandbox is proved around it, and says so; reproduce and doctor fail, with cause and cure.
  without-namespaces = check "without-namespaces" { } ''
    deny="${python.program} -I ${./deny_namespaces.py}"
    $deny ${hermeval} replay --json --no-save ${attempts + "/slash.attempt"} >$TMPDIR/answer.json
    ${judge} $TMPDIR/answer.json bare pass
    status=0
    $deny ${hermeval} reproduce ${attempts + "/slash.attempt"} || status=$?
    [ $status = 2 ]
    status=0
    $deny ${hermeval} doctor || status=$?
    [ $status = 2 ]
  '';

  toolchain = check "toolchain" { } ''
    ${hermeval} toolchain verify
  '';

  # Every committed attempt is one that is expected, and the other way round.
  attempts = check "attempts" { } ''
    diff <(printf '%s\n' ${toString present}) <(printf '%s\n' ${toString (builtins.attrNames expected)})
  '';

  lint = check "lint" { } ''
    ${inTests}
    ${program.ruff}/bin/ruff check --no-cache .
    ${program.ruff}/bin/ruff format --no-cache --check .
    $python -P -c 'import sys; from importlinter.cli import lint_imports_command; lint_imports_command()' --no-cache
  '';

  types = check "types" { } ''
    ${inTests}
    $python -P -m mypy --cache-dir=$TMPDIR/mypy
  '';

  # The rooms of rooms.json, which says of each other room where it is proved instead. The package's pins are laid into the checkout, so that a test that needs the tools
  # finds them. Left out by name: the simulator's command, whose first line names /bin/bash, which a build does not have; set-id files, which Nix's filter of system
  # calls forbids; tools that are missing, which with pins they never are.
  unit = check "unit" { nativeBuildInputs = [ pkgs.bubblewrap pkgs.openssh ]; } ''
    ${inTests}
    cp ${program.pins} sandbox/toolchain/pins.json
    $python -P -m pytest -p no:cacheprovider --basetemp=$TMPDIR/t -q -m 'not nix and not systemd and not bench' \
      tests/test_*.py ${toString (map (room: "tests/${room}") rooms.unit)} \
      --ignore=tests/simulate/test_simulate_{command,doors,hostile}.py \
      --deselect='tests/skills/test_skills_staging.py::test_what_is_no_plain_file_is_refused[set-'{user,group}'-id]' \
      --deselect=tests/toolchain/test_toolchain_install.py::test_toolchain_verify_without_tools_is_an_error_with_one_json_object
  '';
}
// each "replay" "--no-save" (verdict: if verdict == null then "null" else verdict)
// each "reproduce" "" (builtins.concatStringsSep ",")
