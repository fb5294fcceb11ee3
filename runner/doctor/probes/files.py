"""Probes 62 to 71: what hostile programs leave, before the real collector, readers and reports.

Boundary: starts sandboxes, makes hostile files in a private directory. Not here: the readers' own tests. Rules: the bytes are real ones, made inside where an agent would have made them; each probe
has a harmless twin that must come through.
"""

from __future__ import annotations

import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

from runner.bundle.reader import open_attempt
from runner.errors import BundleCorrupt, BundleUnsupported
from runner.report.markdown import code_span
from runner.report.pages import shown_text
from runner.strict_json import StrictJsonError, parse_strict
from runner.text import visible
from sandbox.collect import Entry, Workspace, collect, export
from sandbox.probes.table import Seen
from sandbox.probes.trying import MARK, Site, Table, python, run
from sandbox.process import supervise
from sandbox.walk import Caps

FILES = Table()
probe = FILES.probe


def workspace(site: Site, code: str, caps: Caps | None = None) -> Workspace:
    """Run a Python program in the agents' sandbox and collect what it left. Raises ValueError where it failed."""
    ended, _, found = run(site, python(code), wall_s=120.0, look=lambda handle: collect(handle, caps))
    if ended.exit_status != 0:
        raise ValueError(f"the program failed: {ended.stderr[-300:]!r}")
    return taken(found)


def taken(found: object) -> Workspace:
    """Return what was collected."""
    assert isinstance(found, Workspace), "look() returns one"
    return found


def entry(found: Workspace, path: bytes) -> Entry:
    """Return an entry of the workspace. Raises ValueError."""
    for one in found.entries:
        if one.path == path:
            return one
    raise ValueError(f"{path!r} was not collected")


@probe(62, "Links out of the workspace", "held", "collector", {"shadow": ("=link to /etc/shadow",), "root": ("=link to /",), "long": ("=link of 4095 bytes",), "content": ("=0",)})  # fmt: skip
def links(site: Site) -> Seen:
    """They are recorded as links and never followed."""
    found = workspace(
        site,
        "import os; os.symlink('/etc/shadow', 'l'); os.symlink('/', 'r'); os.symlink('x' * 4095, 'x'); open('f', 'w').write('fine')",
    )
    linked = {name: entry(found, path) for name, path in (("shadow", b"l"), ("root", b"r"), ("long", b"x"))}
    texts = {name: (one.target or b"").decode() for name, one in linked.items() if one.kind == "symlink"}
    return Seen(
        {
            "shadow": f"=link to {texts.get('shadow')}",
            "root": f"=link to {texts.get('root')}",
            "long": f"=link of {len(texts.get('long', ''))} bytes",
            "content": f"={sum(len(one.content or b'') for one in linked.values())}",
        },
        {"a file": f"={(entry(found, b'f').content or b'').decode()}"},
    )


@probe(63, "Fifos, sockets, closed folders, hard links", "held", "collector", {"fifo": ("=fifo",), "socket": ("=socket",), "closed": ("=file",), "twins": ("=2 links",), "exported": ("=False",)})  # fmt: skip
def kinds(site: Site) -> Seen:
    """Each is an entry of its kind; a fifo is never opened, and no special file is written out."""
    code = (
        "import os, socket\nos.mkfifo('fifo'); socket.socket(1).bind('socket')\nos.mkdir('d'); open('d/f', 'w').write('deep'); os.chmod('d', 0)\n"
        "open('a', 'w').write('twin'); os.link('a', 'b')"
    )
    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        dest = supervisor.staging / "out"

        def look(handle: int) -> Workspace:
            found = collect(handle)
            export(handle, dest)
            return found

        found = taken(run(site, python(code), look=look)[2])
        special = any(not path.is_file() and not path.is_dir() for path in dest.rglob("*"))
        closed = [one for one in found.entries if one.path == b"d/f"] or [entry(found, b"d")]
        return Seen(
            {
                "fifo": f"={entry(found, b'fifo').kind}",
                "socket": f"={entry(found, b'socket').kind}",
                "closed": f"={closed[0].kind}",
                "twins": f"={entry(found, b'a').hard_links} links",
                "exported": f"={special}",
            },
            {"a file": f"={(entry(found, b'a').content or b'').decode()}"},
        )


@probe(64, "A tree 1,500 folders deep", "held", "collector", {"depth": ("=1500",)})
def deep(site: Site) -> Seen:
    """It is walked without recursion."""
    found = workspace(
        site, "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\nopen('f', 'w').write('end')"
    )
    deepest = max(one.path.count(b"/") for one in found.entries)
    return Seen({"depth": f"={deepest}"}, {"complete": f"={found.complete}" if found.complete else "no"})


@probe(65, "Hostile names", "held", "escapes", {"kept": ("=6",), "shown": ("=True",)})
def names(site: Site) -> Seen:
    """They are kept byte for byte, and shown without a character that acts."""
    code = "for name in (b'a\\nb', b'\\x1b[2J', b'\\xff\\xfe', b'-rf', b'n' * 255, b'Case'): open(name, 'w').close()"
    found = workspace(site, code)
    from runner.text import visible_bytes

    shown = [visible_bytes(one.path) for one in found.entries]
    plain = all(text.isprintable() for text in shown)
    return Seen(
        {"kept": f"={len(found.entries)}", "shown": f"={plain}"},
        {"a plain name": "=Case" if "Case" in shown else "none"},
    )


@probe(66, "Very many files", "held", "collector", {"taken": ("=1000",), "told": ("=True",)})
def many(site: Site) -> Seen:
    """No more are taken than the cap says, and what is left out is told."""
    found = workspace(site, "for n in range(20000): open(f'{n}', 'w').close()", Caps(entries=1000))
    few = workspace(site, "open('one', 'w').close()", Caps(entries=1000))
    return Seen(
        {"taken": f"={len(found.entries)}", "told": f"={not found.complete}"}, {"few": "=1" if few.complete else "no"}
    )


@probe(67, "A hostile repository", "held", "collector", {"ran": ("=False",), "kind": ("=file",)})
def repository(site: Site) -> Seen:
    """Hooks and settings of a repository, of direnv and of an editor are bytes here: nothing on the host reads them."""
    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        ran, dest = supervisor.staging / MARK, supervisor.staging / "out"
        code = (
            "import os\nfor d in ('.git/hooks', '.git/objects', '.git/refs', '.vscode'): os.makedirs(d)\n"
            f"open('.git/HEAD', 'w').write('ref: refs/heads/x'); open('.git/config', 'w').write('[core]\\nfsmonitor = touch {ran}\\n')\n"
            f"open('.envrc', 'w').write('touch {ran}'); open('.git/hooks/post-checkout', 'w').write('#!/bin/sh\\ntouch {ran}')\nos.chmod('.git/hooks/post-checkout', 0o755)"
        )

        def look(handle: int) -> Workspace:
            export(handle, dest)
            return collect(handle)

        found = taken(run(site, python(code), look=look)[2])
        return Seen(
            {"ran": f"={ran.exists()}", "kind": f"={entry(found, b'.git/config').kind}"},
            {"collected": f"={len(found.entries)}"},
        )


def archives() -> dict[str, bytes]:
    """Return hostile archives."""
    tar, packed = BytesIO(), BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name in ("/etc/absolute", "../up", "same", "same"):
            archive.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("link/passwd"))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("../up", bytes(10 << 20))
    return {"tar": tar.getvalue(), "zip": packed.getvalue()}


@probe(68, "Hostile archives", "refused", "bundle-reader", {"tar": ("BundleCorrupt",), "zip": ("BundleCorrupt",), "in the workspace": ("=file",), "bomb": ("BundleCorrupt",)})  # fmt: skip
def hostile_archives(site: Site) -> Seen:
    """Nothing here unpacks one: in the workspace it is a file, and as an attempt it is refused; so is a frame that unpacks to far more than it says."""
    import zstandard

    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        found = {}
        bomb = zstandard.ZstdCompressor().compress(bytes(256 << 20))
        for name, data in (archives() | {"bomb": bomb}).items():
            path = supervisor.staging / f"{name}.attempt"
            path.write_bytes(data)
            found[name] = opened(path)
        kept = workspace(site, "import tarfile; tarfile.open('t.tar', 'w').addfile(tarfile.TarInfo('/etc/x'))")
        found["in the workspace"] = f"={entry(kept, b't.tar').kind}"
        return Seen(found, {"a good attempt": opened(sample())})


def opened(path: Path) -> str:
    """Open an attempt; return ``=opened`` or the error's kind."""
    try:
        open_attempt(path)
    except (BundleCorrupt, BundleUnsupported) as error:
        return type(error).__name__
    return "=opened"


def sample() -> Path:
    """Return an attempt of the fixtures. Raises ValueError."""
    folder = Path(__file__).resolve().parents[3] / "fixtures" / "attempts"
    for path in sorted(folder.glob("*.attempt")):
        if opened(path) == "=opened":
            return path
    raise ValueError(f"no attempt in {folder}")


DOCUMENTS = {
    "200,000 deep": b"[" * 200_000 + b"]" * 200_000,
    "5,000 digits": b"1" * 5000,
    "NaN": b"NaN",
    "duplicate keys": b'{"a":1,"a":2}',
    "lone surrogate": b'"\\ud800"',
    "too long": b'"' + b"x" * (1 << 20) + b'"',
    "not UTF-8": b'"\xff"',
}


@probe(69, "Hostile JSON", "refused", "strict-json", dict.fromkeys(DOCUMENTS, ("StrictJsonError",)))
def documents(_: Site) -> Seen:
    """Each is the one declared error."""

    def parsed(data: bytes) -> str:
        try:
            return f"={parse_strict(data, max_bytes=1 << 20, max_depth=64)!r}"
        except StrictJsonError:
            return "StrictJsonError"

    return Seen({name: parsed(data) for name, data in DOCUMENTS.items()}, {"good": parsed(b'{"a":[1]}')})


@probe(70, "Output that is commands to its reader", "held", "escapes", {"terminal": ("=True",), "log": ("=True",), "page": ("=True",), "markdown": ("=True",)})  # fmt: skip
def commands(_: Site) -> Seen:
    """No control character, no line of its own, no mark-up comes out."""
    hostile = "x\n::add-mask::secret\n::stop-commands::t\x1b[2J\x1b]8;;http://evil\x07]]><script>alert(1)</script>![i](http://evil)`\u202e"
    import jinja2

    page = jinja2.Environment(autoescape=True).from_string("{{ text }}").render(text=shown_text(hostile))
    span = code_span(hostile)
    return Seen(
        {
            "terminal": f"={visible(hostile).isprintable()}",
            "log": f"={not any(line.startswith('::') for line in visible(hostile).splitlines())}",
            "page": f"={'<script' not in page and chr(27) not in page}",
            "markdown": f"={'::' not in span and chr(10) not in span and span.startswith('`') and span.endswith('`')}",
        },
        {"plain text": "=same" if visible("plain text") == "plain text" else "changed"},
    )


SHIMS = (
    "conftest.py",
    "sitecustomize.py",
    "usercustomize.py",
    "evil.pth",
    "json.py",
    "profiles/artifact.py",
    "test_patched.py",
    "bin/python3",
    ".local/lib/python3/site-packages/evil.pth",
)
"""What a hostile workspace has for its grader: start-up files, a module of the standard library's name, a profile, tests, a program on PATH."""
LOOK = f"""
import os, sys
names = {sorted({name.rpartition("/")[2] for name in SHIMS} - {"artifact.py", "python3"})!r}
found = [f"{{folder}}/{{name}}" for folder, _, files in os.walk("/") for name in files if name in names and "/lib/python3" not in folder]
print(sorted(os.listdir(".")))
print({MARK!r} in sys.modules or os.path.exists("/{MARK}"))
print(found)
print(os.environ.get("PATH"), [path for path in sys.path if "workspace" in path or path in ("", ".")])
print(sys.flags.no_site, sys.flags.no_user_site, bool(sys.flags.safe_path), [n for n in ("sitecustomize", "usercustomize", "site", "conftest") if n in sys.modules])
print(__import__("json").__file__.startswith(sys.prefix) or __import__("json").__file__.startswith(sys.base_prefix))
"""


@probe(71, "Files that would run in the grader", "absent", "sealed-grader", {"working directory": ("=[]",), "ran": ("=False",), "there": ("=[]",), "path": ("=None []",), "start-up": ("=1 1 True []",), "library": ("=True",), "checks": ("=ours",), "program": ("=ours",)})  # fmt: skip
def grader(site: Site) -> Seen:
    """A program leaves them in its workspace, and is graded: the grader's sandbox has none of them, no PATH, no site packages, the profiles of this checkout byte for byte, and the interpreter of the host."""
    from runner.grade.profile_host import host_spec, read_modules
    from sandbox.running import run_once
    from sandbox.spec import File

    evil = f"import os, sys; sys.modules[{MARK!r}] = sys; open('/{MARK}', 'w').close()"
    code = f"import os\nfor name in {SHIMS!r}:\n os.makedirs(os.path.dirname(name) or '.', exist_ok=True); open(name, 'w').write({evil!r})"
    left = workspace(site, code)
    modules = read_modules()
    spec = host_spec(site.host, modules, 20.0)
    program = spec.argv[: next(number for number, word in enumerate(spec.argv) if number and not word.startswith("-"))]
    ended, out = run_once(site.host, spec.model_copy(update={"argv": (*program, "-c", LOOK), "handles": ()}))
    if ended.exit_status != 0:
        raise ValueError(f"the grader's sandbox did not run: {ended.stderr[-300:]!r}")
    names = ("working directory", "ran", "there", "path", "start-up", "library")
    found = {name: f"={line}" for name, line in zip(names, out.decode().splitlines(), strict=True)}
    inside = {
        mount.target.rpartition("/")[2]: mount.content
        for mount in spec.mounts
        if isinstance(mount, File) and "/profiles/" in mount.target
    }
    ours = {path.name: path.read_bytes() for path in modules.folder.glob("*.py")}
    found["checks"] = "=ours" if inside == ours else "=others"
    found["program"] = "=ours" if Path(program[0]) == site.host.python.resolve() else f"={program[0]}"
    taken_in = {one.path.decode() for one in left.entries if one.kind == "file"}
    return Seen(found, {"it was left": f"={len(taken_in)}" if taken_in == set(SHIMS) else f"{sorted(taken_in)}"})
