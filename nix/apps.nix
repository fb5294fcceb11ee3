# `nix run .#NAME -- ARGS…`
{ pkgs, program, ... }:
let
  verb =
    words: description:
    let
      script = pkgs.runCommand "hermeval-app" { } ''
        cat >$out <<'END'
        #!${pkgs.bash}/bin/bash
        exec ${program.hermeval}/bin/hermeval ${words} "$@"
        END
        chmod 0555 $out
      '';
    in
    {
      type = "app";
      program = "${script}";
      meta = { inherit description; };
    };
  hermeval = verb "" "Evaluate agent skills hermetically: every verb of the command.";
in
{
  inherit hermeval;
  default = hermeval;
  eval = verb "run" "Run fixtures: the real Claude CLI on the real skill, in a sandbox, through the gate.";
  replay = verb "replay" "Grade saved output again with today's profiles, offline.";
  reproduce = verb "reproduce" "Run attempts again on their recorded exchanges and compare bit for bit.";
  doctor = verb "doctor" "Try on this host each thing that a run needs; name causes and cures.";
}
