{
  description = "hermeval: hermetic, reproducible runs of agent skills with the real Claude CLI";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs = { self, nixpkgs }: import ./nix { inherit self nixpkgs; };
}
