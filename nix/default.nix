# The flake's outputs. What a system's outputs need comes through `for`, which holds everything of that system once.
{ self, nixpkgs }:
let
  systems = [
    "x86_64-linux"
    "aarch64-linux"
  ];
  eachSystem =
    make:
    builtins.listToAttrs (
      map (system: {
        name = system;
        value = make (for system);
      }) systems
    );
  for =
    system:
    let
      pkgs = import ./pkgs.nix { inherit nixpkgs system; };
      toolchain = import ./toolchain.nix { inherit pkgs system; };
      python = import ./python.nix { inherit pkgs system; };
      rootfs = import ./rootfs.nix {
        inherit pkgs system python;
        standIn = nixpkgs.standIn or false;
      };
      program = import ./program.nix {
        inherit
          pkgs
          system
          toolchain
          python
          rootfs
          ;
      };
    in
    {
      inherit
        pkgs
        system
        toolchain
        python
        rootfs
        program
        ;
    };
in
{
  packages = eachSystem (s: {
    default = s.program.hermeval;
    hermeval = s.program.hermeval;
    toolchain-agent = s.toolchain.agent;
    toolchain-grader = s.toolchain.grader;
    wheels = s.python.runtime.wheels;
    wheels-test = s.python.test.wheels;
    rootfs = s.rootfs.description;
    determinism = s.program.determinism;
  });

  apps = eachSystem (s: import ./apps.nix s);

  checks = eachSystem (s: import ./checks.nix s);

  devShells = eachSystem (s: {
    default = import ./shell.nix s;
  });

  nixosModules.hardened-runner = import ./modules/hardened-runner.nix { inherit self; };

  formatter = eachSystem (s: s.program.formatter);
}
