"""Judge the JSON answer of a command against what is wanted: used by the flake's checks, on the pinned interpreter alone.

judge_answer.py ANSWER run                    a scripted run was measured and passed, its skill proved by both witnesses
judge_answer.py ANSWER replay VERDICT         one attempt was regraded to this verdict; ``null`` for one that has no output to grade or is never scored, which is refused as such
judge_answer.py ANSWER reproduce WORD[,WORD]  one attempt was run again and came out as one of these words
judge_answer.py ANSWER bare VERDICT           as replay, and graded without a namespace of its own
judge_answer.py ANSWER probes NUMBER[,NUMBER] every probe held but these, which make set-id files: Nix's filter of system calls forbids that, and they must say so
"""

import json
import sys
from pathlib import Path


def main(path: str, command: str, *wanted: str) -> str | None:
    """Return what is wrong, or None."""
    answer = json.loads(Path(path).read_text(encoding="utf-8"))
    if command == "probes":
        return probes(answer["results"], {int(number) for number in wanted[0].split(",")})
    if answer["command"] != ("replay" if command == "bare" else command):
        return f"the answer is one of {answer['command']!r}"
    (row,) = answer["results" if command == "reproduce" else "attempts"]
    match command:
        case "run":
            found = [row["verdict"], row["outcome"]["kind"], row["skill_state"], row["witnesses"]]
            right = (
                found == ["pass", "measured", "ran", {"transcript": True, "wire": True}] and answer["exit_code"] == 0
            )
        case "replay" if wanted == ("null",):
            found = [row["verdict"], row["outcome"]["code"]]
            right = found in (["error", "integrity"], ["error", "never-scored"])
        case "bare":
            found = [row["verdict"], row.get("inner")]
            right = found == [wanted[0], "none"]
        case _:
            found = [row["verdict"]]
            right = row["verdict"] in wanted[0].split(",")
    sys.stdout.write(f"{command} gave {json.dumps(found)}\n")  # ci/soak-reproduce counts the words in the build's log
    return None if right else f"{command} gave {found}, wanted {list(wanted)}: {json.dumps(row)[:3000]}"


def probes(rows: list[dict[str, object]], forbidden: set[int]) -> str | None:
    """Return which probes are not as they must be, or None."""
    bad = {row["number"]: str(row["cause"]) for row in rows if row["status"] == "hole" or not row["control"]}
    wrong = {
        number: cause
        for number, cause in bad.items()
        if number not in forbidden or "Operation not permitted" not in cause
    }
    missing = sorted(forbidden - set(bad))
    return (
        f"probes: wrong {wrong}, unexpectedly possible {missing}, of {len(rows)}"
        if wrong or missing or len(rows) < 78
        else None
    )


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
