# A small evaluator for the NixOS module, in place of nixpkgs' lib: enough to see what the module says. The real evaluation and the VM test need nixpkgs: nix/runner-test.nix, in .github/workflows/nix.yml.
{ module, keyFile }:
let
  type = { __functor = _: _: type; };
  lib = {
    mkOption = option: option;
    mkEnableOption = _: { default = false; };
    mkOverride = priority: value: { inherit priority value; };
    hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
    mkIf = condition: value: if condition then value else { };
    types = {
      package = type;
      str = type;
      path = type;
      nullOr = type;
      attrsOf = type;
      submodule = type;
    };
  };
  pkgs = {
    python313 = "/python";
    stdenv.hostPlatform.system = "x86_64-linux";
    writeShellScriptBin = name: text: { inherit name text; };
  };
  self.packages.x86_64-linux.hermeval = "/package";
  evaluated =
    enable: import module { inherit self; } {
      inherit lib pkgs;
      config.services.hermeval-runner = builtins.mapAttrs (_: option: option.default) (evaluated enable).options.services.hermeval-runner // {
        inherit enable keyFile;
        githubRunners.evals = {
          url = "https://example.invalid/skills";
          tokenFile = "/run/secrets/runner";
        };
      };
    };
in
{
  on = (evaluated true).config;
  off = (evaluated false).config;
}
