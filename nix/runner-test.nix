# The NixOS module on real nixpkgs: `evaluation` is a whole system's configuration with the module in it, `vm` a booted machine that runs an attempt. Both need nixpkgs and the
# internet, and are in no check that runs without (.github/workflows/nix.yml):
#
#   nix build --impure --expr '(import ./nix/runner-test.nix { flake = builtins.getFlake (toString ./.); }).vm'
{
  flake,
  system ? builtins.currentSystem,
}:
let
  inherit (flake.inputs) nixpkgs;
  pkgs = nixpkgs.legacyPackages.${system};
  runner = {
    imports = [ flake.nixosModules.hardened-runner ];
    services.hermeval-runner = {
      enable = true;
      keyFile = "/run/secrets/key";
    };
  };
  whole = nixpkgs.lib.nixosSystem {
    inherit system;
    modules = [
      runner
      {
        nixpkgs.config.allowUnfree = true;
        boot.loader.grub.enable = false;
        fileSystems."/" = {
          device = "none";
          fsType = "tmpfs";
        };
        system.stateVersion = nixpkgs.lib.trivial.release;
        services.hermeval-runner.githubRunners.evals = {
          url = "https://github.com/example/skills";
          tokenFile = "/run/secrets/runner";
        };
      }
    ];
  };
in
{
  # The units as NixOS writes them; an assertion that fails ends the evaluation.
  evaluation = builtins.seq whole.config.system.build.toplevel.drvPath {
    eval = whole.config.systemd.units."hermeval-eval@.service".text;
    evalSocket = whole.config.systemd.units."hermeval-eval.socket".text;
    gate = whole.config.systemd.units."hermeval-gate.service".text;
    sysctl = whole.config.boot.kernel.sysctl."kernel.core_pattern";
    ephemeral = whole.config.services.github-runners.evals.ephemeral;
    groups = whole.config.systemd.services.github-runner-evals.serviceConfig.SupplementaryGroups;
  };

  vm = pkgs.testers.runNixOSTest {
    name = "hermeval-hardened-runner";
    nodes.machine =
      { ... }:
      {
        imports = [ runner ];
        virtualisation = {
          cores = 2;
          memorySize = 6144;
          diskSize = 4096;
        };
        systemd.tmpfiles.rules = [
          "d /run/secrets 0700 root root -"
          "f /run/secrets/key 0400 root root - sk-ant-a-key-that-pays-for-nothing-0123456789"
        ];
        users.users.job = {
          isNormalUser = true;
          extraGroups = [ "hermeval-submit" ];
        };
        users.users.stranger.isNormalUser = true;
        environment.systemPackages = [ flake.packages.${system}.hermeval ];
        environment.etc."fixtures".source = ../fixtures;
      };
    testScript = ''
      import json

      share = "${flake.packages.${system}.hermeval}/share/hermeval"
      submit = f"${pkgs.python313}/bin/python3 -I -S {share}/ci/runner/submit.py"

      machine.wait_for_unit("hermeval-eval.socket")
      machine.wait_for_unit("hermeval-gate.socket")

      with subtest("hermeval doctor holds where attempts run"):
          machine.succeed(f"runuser -u job -- {submit} --doctor")

      with subtest("a run is measured, and its attempt arrives whole"):
          words = "missing-account --out /tmp/job-out --no-judge"
          answer = json.loads(machine.succeed(f"runuser -u job -- {submit} /etc/fixtures/ {words}"))
          assert answer["attempts"][0]["verdict"] == "pass", answer
          machine.succeed("hermeval verify /tmp/job-out/*.attempt")

      with subtest("a stranger is refused"):
          status, out = machine.execute(f"runuser -u stranger -- {submit} --doctor")
          assert status == 2, out
          assert json.loads(out)["error"]["code"] == "runner-not-allowed", out

      with subtest("the gate starts with its key, and nobody else reads it"):
          machine.succeed("systemctl start hermeval-gate.service")
          machine.fail("runuser -u hermeval-eval -- cat /run/secrets/key")
          machine.succeed("test $(stat -c %U /var/lib/hermeval-gate) = hermeval-gate")

      with subtest("a second request waits for the first"):
          machine.succeed(
              "systemd-run --unit=first --uid=job --property=Type=exec ${pkgs.python313}/bin/python3 -c "
              "'import socket, time; s = socket.socket(socket.AF_UNIX); s.connect(\"/run/hermeval-runner/eval.sock\"); time.sleep(60)'"
          )
          machine.wait_until_succeeds("systemctl list-units --plain --no-legend 'hermeval-eval@*' | grep hermeval")
          status, out = machine.execute(f"runuser -u job -- {submit} --doctor --wait 0")
          assert json.loads(out)["error"]["code"] == "runner-busy", out
    '';
  };
}
