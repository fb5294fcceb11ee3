# Every attribute of nixpkgs that this flake uses, and nothing else: pkgs.nix picks exactly these, so that a name which is not here cannot be used.
# tests/nix-standin offers the same ones; tests/nix compares the three.
[
  "bash"
  "bashInteractive" # asked for by `nix develop` itself
  "bubblewrap"
  "cacert"
  "coreutils"
  "diffutils"
  "findutils"
  "gawk"
  "gcc"
  "gitMinimal"
  "glibc"
  "gnugrep"
  "gnused"
  "mkShell"
  "nodejs_24"
  "openssh"
  "patchelf"
  "python313"
  "python313Packages.pip"
  "ripgrep"
  "runCommand"
  "stdenv.cc.cc.lib"
]
