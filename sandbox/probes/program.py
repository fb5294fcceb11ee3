"""The hostile program: what facts/sandbox.md §2 tries from inside, each attempt beside a harmless twin that must work.

Boundary: a program, run inside a sandbox as ``/usr/bin/python3 -I -S program.py`` with its context on stdin, and never imported; tools.py, host.py and further.py lie beside it and are part of it.
Standard library only. Not here: what each attempt must come to (table.py).
Rules: each probe runs in a process of its own with a time limit, and prints nothing. An attempt comes to ``=`` and a value where it worked, to the name of an errno, or to the name of a
signal. The first line out is the marker that a sandbox ran; then comes one JSON object for each probe: its number, attempts and controls.
"""

# ruff: noqa: BLE001, F401, PTH123, T201 - a hostile program is short and blunt
# mypy: ignore-errors

import json
import os
import signal
import sys

sys.path.append(__file__.rpartition("/")[0])
import further
import host
from tools import CONTEXT, DEEP, LIMIT_S, PROBES, attempt, probe, write

__all__ = ["further", "host"]


def run(number):
    """Make a probe's attempts and controls in a process of its own; return what they came to."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        signal.alarm(LIMIT_S)
        try:
            attempts, controls = PROBES[number]()
            found = {
                "controls": {name: attempt(act) for name, act in controls.items()},
                "attempts": {name: attempt(act) for name, act in attempts.items()},
            }
        except BaseException as error:
            found = {"failure": repr(error)}
        os.write(send, json.dumps(found).encode()[:60000])
        os._exit(0)
    os.close(send)
    with open(receive, "rb") as pipe:
        data = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(data) if data else {"failure": f"the probe ended with status {status}"}


if __name__ == "__main__":
    CONTEXT["opened"] = [number for number in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{number}")]
    os.makedirs(DEEP, exist_ok=True)
    print("marker", flush=True)
    for one in CONTEXT["numbers"]:
        print(json.dumps({"number": one, **run(one)}), flush=True)
