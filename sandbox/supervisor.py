"""The supervisor's program: ``/usr/bin/python3 -I -S supervisor.py CONTROL-FD UID GID STAGING GROUP`` (``-`` where there is none).

Boundary: a program, never imported. roles.py, box.py, kernel.py, listener.py, procfs.py, canary.py, watchdog.py and group.py lie beside it and are part of it: standard library only, no package, few imports, because its
start lies on every run's path. For the same reason they import ``posix``, which is built in and is what ``os`` is made of, and this file is short: only imported
modules are kept compiled.
Messages are SEQPACKET datagrams of NUL-separated fields; the first is the verb. In: ``start`` (with descriptors; the first is a file of NUL-terminated ``key=value``
fields), ``release``, ``kill REASON``. Out: ``refused TEXT``, ``held SETUP-US LIMIT=VALUE…`` (with descriptors: pid 1, listeners, handles), ``failed STEP TEXT``,
``ended EXIT-CODE REASON BWRAP-STATUS DURATION-US dead|alive released|held MEMORY-PEAK FACT=VALUE…``. running.py is the other end.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from sandbox import roles
else:
    import posix as os

    sys.path.append(__file__.rpartition("/")[0])
    import roles

if __name__ == "__main__":
    roles.main(sys.argv)
    os._exit(0)  # nothing is left to be flushed, and taking an interpreter down takes milliseconds
