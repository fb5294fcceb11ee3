# `nix develop`: hermeval from the store, and what its tests and linters need.
{
  pkgs,
  program,
  python,
  ...
}:
pkgs.mkShell {
  packages = [
    pkgs.bash
    pkgs.bubblewrap
    pkgs.git
    pkgs.nodejs
    pkgs.python
    program.hermeval
    program.ruff
    program.formatter
  ];
  PYTHONPATH = "${python.test.site}";
}
