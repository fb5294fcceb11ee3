# The two C parts of pinned runs, by the pinned compiler. The options are those of sandbox/determinism/parts.py, which makes them where there is no Nix.
{ pkgs }:
pkgs.runCommand "hermeval-determinism" { nativeBuildInputs = [ pkgs.gcc ]; } ''
  mkdir $out
  cc -O2 -std=gnu17 -s -o $out/attend ${../sandbox/determinism/attend.c}
  cc -O2 -std=gnu17 -s -fPIC -shared -fvisibility=hidden -o $out/clock.so ${../sandbox/determinism/clock.c}
''
