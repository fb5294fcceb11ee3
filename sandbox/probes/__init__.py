"""The probe suite of the sandbox (facts/sandbox.md §2): a hostile program and what must come of it."""
