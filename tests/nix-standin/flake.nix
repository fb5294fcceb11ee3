{
  description = "A stand-in for nixpkgs: the attributes that hermeval's flake uses, as links to Debian's programs. For tests; nothing of it is pinned.";

  outputs = { self }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: builtins.listToAttrs (map (system: { name = system; value = make system; }) systems);

      # Debian 12's Python. ci/nix-check puts another version beside this file where the machine has another.
      pythonVersion =
        if builtins.pathExists ./python-version then
          builtins.head (builtins.split "\n" (builtins.readFile ./python-version))
        else
          "3.11";

      packages = system:
        let
          triplet = builtins.replaceStrings [ "-linux" ] [ "-linux-gnu" ] system;
          base = name: script: builtins.derivation {
            inherit name system;
            builder = "/bin/sh";
            args = [ "-ec" script ];
            PATH = "/usr/bin:/bin";
            outputs = [ "out" ];
          };
          # A package whose programs are the host's own.
          link = name: programs: base name ''
            mkdir -p $out/bin
            for program in ${toString programs}; do ln -s /usr/bin/$program $out/bin/$program; done
          '';
          setup = base "setup" ''
            mkdir -p $out
            echo 'export PATH=/usr/bin:/bin; for p in ''${nativeBuildInputs:-} ''${packages:-}; do PATH=$p/bin:$PATH; done; HOME=''${HOME:-/homeless-shelter}' >$out/setup
          '';
          runCommand = name: environment: buildCommand: builtins.derivation ({
            inherit name system buildCommand;
            builder = "/bin/bash";
            outputs = [ "out" ];
            stdenv = setup;
            args = [ "-ec" "source $stdenv/setup; if [ -e \"\${buildCommandPath:-}\" ]; then source $buildCommandPath; else eval \"$buildCommand\"; fi" ];
          } // environment // { passAsFile = [ "buildCommand" ] ++ (environment.passAsFile or [ ]); });
        in
        rec {
          inherit runCommand;
          mkShell = environment: runCommand "shell" environment "mkdir $out";
          bash = link "bash" [ "bash" "sh" ];
          bashInteractive = bash;
          bubblewrap = link "bubblewrap" [ "bwrap" ];
          cacert = base "cacert" "mkdir -p $out/etc/ssl/certs; ln -s /etc/ssl/certs/ca-certificates.crt $out/etc/ssl/certs/ca-bundle.crt";
          coreutils = link "coreutils" [ "basename" "cat" "chmod" "cp" "cut" "date" "dirname" "echo" "env" "false" "head" "id" "ln" "ls" "mkdir" "mktemp" "mv" "pwd" "readlink" "realpath" "rm" "rmdir" "sha256sum" "sleep" "sort" "stat" "tail" "tee" "test" "touch" "tr" "true" "uname" "uniq" "wc" ];
          diffutils = link "diffutils" [ "cmp" "diff" ];
          findutils = link "findutils" [ "find" "xargs" ];
          gawk = link "gawk" [ "awk" ];
          gcc = link "gcc" [ "as" "cc" "gcc" "ld" ];
          gitMinimal = link "git" [ "git" ];
          glibc = base "glibc" ''
            mkdir -p $out/lib
            for loader in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do ln -s $loader $out/lib/; done
          '';
          gnugrep = link "grep" [ "grep" ];
          gnused = link "sed" [ "sed" ];
          nodejs_24 = link "nodejs" [ "node" "npm" ];
          openssh = link "openssh" [ "ssh-add" "ssh-agent" "ssh-keygen" ];
          # Debian's loader finds the libraries of a wheel by itself.
          patchelf = base "patchelf" ''
            mkdir -p $out/bin
            printf '#!/bin/sh\nexit 0\n' >$out/bin/patchelf
            chmod 0555 $out/bin/patchelf
          '';
          python313 = link "python" [ "python3" ] // { inherit pythonVersion; };
          # The wheel that Debian's python3-venv brings along.
          python313Packages.pip = base "pip" ''
            site=$out/lib/python${pythonVersion}/site-packages
            mkdir -p $site
            python3 -I -m zipfile -e /usr/share/python-wheels/pip-*.whl $site
          '';
          ripgrep = link "ripgrep" [ "rg" ];
          stdenv.cc.cc.lib = base "cxx" ''
            mkdir -p $out/lib
            for library in libstdc++.so.6 libgcc_s.so.1; do ln -s /usr/lib/${triplet}/$library $out/lib/; done
          '';
        };
    in
    {
      standIn = true;
      legacyPackages = each packages;
    };
}
