# The program: the runner's modules, compiled, behind a script with a file beside the toolchain lock that says where
# everything pinned lies (read by sandbox/pinned.py).
{
  pkgs,
  system,
  toolchain,
  python,
  rootfs,
}:
let
  source = import ./source.nix [
    "runner"
    "sandbox"
    "profiles"
    "fixtures"
    "ci"
  ];
  determinism = import ./determinism.nix { inherit pkgs; };
  pins = pkgs.runCommand "hermeval-pins.json" {
    passAsFile = [ "content" ];
    content = builtins.toJSON {
      schema_version = 1;
      inherit system;
      store = builtins.storeDir;
      trees = {
        agent = "${toolchain.agent}";
        grader = "${toolchain.grader}";
      };
      programs = {
        bwrap = "${pkgs.bubblewrap}/bin/bwrap";
        python = python.program;
        ssh_keygen = "${pkgs.openssh}/bin/ssh-keygen";
      };
      loader = "${pkgs.glibc}/lib/${rootfs.loaderName}";
      libraries = rootfs.libraries;
      rootfs = "${rootfs.description}";
      determinism = "${determinism}";
    };
  } "cp $contentPath $out";

  # A script named `name` that becomes `command`, in the environment of `site`.
  script = site: name: command: ''
    cat >$out/bin/${name} <<'END'
    #!${pkgs.bash}/bin/bash
    unset "''${!PYTHON@}"
    export PYTHONNOUSERSITE=1 PYTHONPATH=@out@/share/hermeval:${site}
    exec ${command}
    END
    sed -i "s|@out@|$out|" $out/bin/${name}
    chmod 0555 $out/bin/${name}
  '';

  hermeval =
    pkgs.runCommand "hermeval-0.1.0"
      {
        PYTHONHASHSEED = "0";
      }
      ''
        mkdir -p $out/bin $out/share/hermeval
        cp -r ${source}/* $out/share/hermeval/
        chmod -R u+w $out/share/hermeval
        mkdir $out/share/hermeval/fixtures/attempts
        cp ${../fixtures/attempts/slash.attempt} $out/share/hermeval/fixtures/attempts/slash.attempt # a copy is damaged by doctor --probes
        cp ${pins} $out/share/hermeval/sandbox/toolchain/pins.json
        ${python.program} -I -m compileall -q --invalidation-mode unchecked-hash \
          $out/share/hermeval/runner $out/share/hermeval/sandbox $out/share/hermeval/profiles
        ${script python.runtime.site "hermeval" ''${python.program} -P -m runner.cli "$@"''}
      '';

  # ruff comes as a wheel; its loader is named, since a store-only system has none at the usual path.
  ruff = pkgs.runCommand "hermeval-ruff" { } ''
    mkdir -p $out/bin
    cat >$out/bin/ruff <<'END'
    #!${pkgs.bash}/bin/bash
    exec ${rootfs.inside}/lib/${rootfs.loaderName} --library-path ${pkgs.glibc}/lib:${pkgs.cxx}/lib ${python.test.site}/bin/ruff "$@"
    END
    chmod 0555 $out/bin/ruff
  '';

  formatter = pkgs.runCommand "hermeval-format" { } ''
    mkdir -p $out/bin
    cat >$out/bin/hermeval-format <<'END'
    #!${pkgs.bash}/bin/bash
    # Formats the Python of the checkout it is started in; with arguments, those files.
    set -euo pipefail
    [ $# -gt 0 ] || set -- .
    exec ${ruff}/bin/ruff format --no-cache "$@"
    END
    chmod 0555 $out/bin/hermeval-format
  '';
in
{
  inherit
    hermeval
    determinism
    pins
    ruff
    formatter
    ;
}
