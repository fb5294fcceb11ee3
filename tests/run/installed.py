"""What ci/bootstrap.sh has set up in the cache, for tests that start the product as somebody else."""

from __future__ import annotations

import os
from pathlib import Path

from runner.toolchain import default_cache_root

CACHE = default_cache_root(os.geteuid(), os.environ)


def find_python() -> Path:
    """The interpreter of the environment that ci/bootstrap.sh makes in the cache: the tests' own where it was made for them."""
    found = sorted(CACHE.glob("python-*/bin/python"))
    assert found, f"ci/test or ci/hermeval makes an environment below {CACHE}"
    return found[-1]
