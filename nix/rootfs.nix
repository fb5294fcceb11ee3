# The read-only system of a sandbox: exactly the closure of a small pinned environment, described as data that sandbox/rootfs.py reads.
#
# A program more for agents is a line in `inside`. The CLI is not in it: it is bound by itself, unpatched, and finds its loader at the usual path.
# With the stand-in for nixpkgs the programs are the host's own, so there is nothing to pin, and the description says so.
{
  pkgs,
  system,
  python,
  standIn,
}:
let
  loader =
    {
      "x86_64-linux" = "/lib64/ld-linux-x86-64.so.2";
      "aarch64-linux" = "/lib/ld-linux-aarch64.so.1";
    }
    .${system};
  triplet = builtins.replaceStrings [ "-linux" ] [ "-linux-gnu" ] system;
  inside =
    pkgs.runCommand "hermeval-inside"
      {
        programs = [
          pkgs.bash
          pkgs.coreutils
          pkgs.diffutils
          pkgs.findutils
          pkgs.gawk
          pkgs.git
          pkgs.gnugrep
          pkgs.gnused
          pkgs.python
          pkgs.ripgrep
        ];
      }
      ''
        mkdir -p $out/bin $out/lib
        for program in $programs; do
          for file in $program/bin/*; do
            [ -e "$out/bin/''${file##*/}" ] || ln -s "$file" $out/bin/
          done
        done
        ln -s ${pkgs.glibc}/lib/${baseNameOf loader} $out/lib/
      '';
  source = import ./source.nix [
    "runner"
    "sandbox"
  ];
in
{
  inherit inside;
  loaderName = baseNameOf loader;
  # Where libraries of programs built for a distribution lie; the first one is where the loader looks by itself. The stand-in's are the host's.
  libraries =
    if standIn then
      [
        "/lib/${triplet}"
        "/usr/lib/${triplet}"
      ]
    else
      [
        "${pkgs.glibc}/lib"
        "${pkgs.cxx}/lib"
      ];
  description =
    pkgs.runCommand "hermeval-rootfs"
      {
        exportReferencesGraph = [
          "graph"
          inside
        ];
      }
      ''
        PYTHONPATH=${source}:${python.runtime.site} ${python.program} -P -m runner.describe_rootfs \
          --graph graph --root ${inside} --store ${builtins.storeDir} --loader ${loader} \
          ${if standIn then "--stand-in" else ""} >$out
      '';
}
