# NixOS: attempts in units of their own beside an ephemeral GitHub runner that keeps its hardening. Options of units, users, sysctls and directories are those of
# ci/runner/options.json, from which the plain units for Debian and Ubuntu are made too; here is only what NixOS calls them.
#
#   imports = [ hermeval.nixosModules.hardened-runner ];
#   services.hermeval-runner = {
#     enable = true;
#     keyFile = "/run/secrets/anthropic";     # leave out for scripted runs and replays only
#     githubRunners.evals = { url = "https://github.com/me/skills"; tokenFile = "/run/secrets/runner"; };
#   };
{ self }:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.hermeval-runner;
  table = builtins.fromJSON (builtins.readFile ../../ci/runner/options.json);
  share = "${cfg.package}/share/hermeval";
  places = {
    "@hermeval@" = "${cfg.package}/bin/hermeval";
    "@entry@" = "${share}/ci/runner/entry.py";
    "@python@" = "${cfg.python}/bin/python3";
    "@key@" = if cfg.keyFile == null then "/dev/null" else toString cfg.keyFile;
  };
  place =
    value:
    if builtins.isString value then
      builtins.replaceStrings (builtins.attrNames places) (builtins.attrValues places) value
    else
      value;
  # [ [ option value why ] … ] → { option = value; }
  options =
    entries:
    builtins.listToAttrs (
      map (entry: {
        name = builtins.elemAt entry 0;
        value = place (builtins.elemAt entry 1);
      }) entries
    );
  section = unit: name: options (unit.${name} or [ ]);
  # What attempts must not see beside what the table names: where this machine has its key and its tokens.
  secrets =
    (if cfg.keyFile == null then [ ] else [ (toString cfg.keyFile) ])
    ++ map (runner: toString runner.tokenFile) (builtins.attrValues cfg.githubRunners);
  serviceOf =
    unit:
    let
      made = section unit "Service";
    in
    made
    // (
      if made.User or null == "hermeval-eval" then
        { InaccessiblePaths = made.InaccessiblePaths ++ map (path: "-${path}") secrets; }
      else
        { }
    );
  wanted = unit: builtins.attrValues (section unit "Install");
  # A kind's units, by their name without the ending; the gate's only where there is a key.
  ofKind =
    kind: make:
    builtins.listToAttrs (
      builtins.concatMap (
        name:
        let
          parts = builtins.match "(.*)\\.${kind}" name;
          base = builtins.head parts;
        in
        if parts == null || (base == "hermeval-gate" && cfg.keyFile == null) then
          [ ]
        else
          [
            {
              name = base;
              value = make table.units.${name};
            }
          ]
      ) (builtins.attrNames table.units)
    );
  submit = pkgs.writeShellScriptBin "hermeval-submit" ''
    exec ${cfg.python}/bin/python3 -I -S ${share}/ci/runner/submit.py "$@"
  '';
in
{
  options.services.hermeval-runner = {
    enable = lib.mkEnableOption "attempts of hermeval in hardened units";
    package = lib.mkOption {
      type = lib.types.package;
      default = self.packages.${pkgs.stdenv.hostPlatform.system}.hermeval;
      description = "The hermeval that runs attempts.";
    };
    python = lib.mkOption {
      type = lib.types.package;
      default = pkgs.python313;
      description = "The Python of the units' entry program, which needs its standard library only.";
    };
    keyFile = lib.mkOption {
      type = lib.types.nullOr lib.types.path;
      default = null;
      description = "File with the provider key, read by systemd for the gate's unit alone; not in the Nix store, which everybody can read. Without one there is no gate, and only scripted runs.";
    };
    githubRunners = lib.mkOption {
      type = lib.types.attrsOf (
        lib.types.submodule {
          options = {
            url = lib.mkOption {
              type = lib.types.str;
              description = "Repository or organisation; private ones only.";
            };
            tokenFile = lib.mkOption {
              type = lib.types.path;
              description = ''
                File with a personal access token that may administer the repository's (or organisation's) runners: an ephemeral runner registers anew
                at each start. A registration token does not do, since it expires after an hour. Not in the Nix store.
              '';
            };
          };
        }
      );
      default = { };
      description = "Ephemeral GitHub runners that may submit attempts. Their own confinement stays as it is.";
    };
  };

  config = lib.mkIf cfg.enable {
    systemd.slices = ofKind "slice" (unit: {
      unitConfig = section unit "Unit";
      sliceConfig = section unit "Slice";
    });
    systemd.sockets = ofKind "socket" (unit: {
      unitConfig = section unit "Unit";
      socketConfig = section unit "Socket";
      wantedBy = wanted unit;
    });
    systemd.services = ofKind "service" (unit: {
      unitConfig = section unit "Unit";
      serviceConfig = serviceOf unit;
      wantedBy = wanted unit;
    });
    systemd.tmpfiles.rules = map (
      entry: builtins.concatStringsSep " " (builtins.genList (builtins.elemAt entry) 5) + " -"
    ) table.tmpfiles;
    # Above the defaults of nixpkgs, which has one for core_pattern, and below whatever a configuration or its hardened profile says: that may be stricter.
    boot.kernel.sysctl = builtins.mapAttrs (_: value: lib.mkOverride 900 value) (options table.sysctl);

    assertions = map (path: {
      assertion = !(lib.hasPrefix "${builtins.storeDir}/" path);
      message = "services.hermeval-runner: ${path} is a secret in the Nix store, which every user and every attempt can read. Give the path of a file outside as a string.";
    }) secrets;

    users.users = builtins.mapAttrs (name: description: {
      inherit description;
      isSystemUser = true;
      group = name;
    }) table.users;
    users.groups = builtins.mapAttrs (_: _: { }) (table.users // table.groups);

    # The work directory lies below /run/github-runner, which is a tmpfs. State, with the registration's credentials, lies in /var/lib/github-runner, and is purged at each
    # start because the runner is ephemeral. Attempts can see neither (InaccessiblePaths= in the table).
    services.github-runners = builtins.mapAttrs (_: runner: {
      enable = true;
      ephemeral = true;
      replace = true;
      inherit (runner) url tokenFile;
      extraLabels = [ "hermeval" ];
      extraPackages = [ submit ];
      serviceOverrides.SupplementaryGroups = builtins.attrNames table.groups;
    }) cfg.githubRunners;
  };
}
