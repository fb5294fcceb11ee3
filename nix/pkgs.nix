# The one door to nixpkgs: the attributes of attributes.nix of one system, each under the last part of its name but for the ones renamed here.
{ nixpkgs, system }:
let
  take = path: builtins.foldl' (set: name: set.${name}) nixpkgs.legacyPackages.${system} path;
  split = name: builtins.filter builtins.isString (builtins.split "\\." name);
  rename = {
    "nodejs_24" = "nodejs";
    "python313" = "python";
    "python313Packages.pip" = "pip";
    "stdenv.cc.cc.lib" = "cxx";
    "gitMinimal" = "git";
  };
in
builtins.listToAttrs (
  map (name: {
    name = rename.${name} or name;
    value = take (split name);
  }) (import ./attributes.nix)
)
