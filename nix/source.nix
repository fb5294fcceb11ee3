# Some top-level folders of this checkout as a store path of their own, so that a change elsewhere builds nothing anew. Saved attempts are left out: each
# check takes its own.
folders:
let
  root = toString ../. + "/";
  skip = [
    "__pycache__"
    "attempts"
    "node_modules"
  ];
in
builtins.path {
  name = "hermeval-source";
  path = ../.;
  filter =
    path: type:
    let
      parts = builtins.filter builtins.isString (
        builtins.split "/" (builtins.replaceStrings [ root ] [ "" ] path)
      );
      folder = builtins.head parts;
    in
    builtins.elem folder folders && !(type == "directory" && builtins.elem (baseNameOf path) skip);
}
