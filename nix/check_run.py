"""Judge the answer of a scripted ``hermeval run --json``: used by the check ``run`` of the flake, on the pinned interpreter alone."""

import json
import sys
from pathlib import Path

answer = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
(row,) = answer["attempts"]
wanted = {"outcome": "measured", "skill_state": "ran", "witnesses": {"transcript": True, "wire": True}}
found = {"outcome": row["outcome"]["kind"], "skill_state": row["skill_state"], "witnesses": row["witnesses"]}
if answer["exit_code"] != 0 or found != wanted:
    raise SystemExit(f"the run was not measured as it should be: {found}, wanted {wanted}: {row['outcome']}")
