#!/usr/bin/env python3
"""Ends a check: counts its tests, says what took longest and what failed.

    report.py BUILD_DIR SINCE RESULTS...
    report.py --counts RESULTS...

SINCE: when the check began (seconds since the epoch). RESULTS: what run_tests.py and tools/check itself wrote; a file
without an entry is an error. The exit code is 1 when something failed or nothing passed. --counts prints one line, "N
passed, N failed, N skipped".
"""

import json
import pathlib
import sys

MOST = 10


def print_table(title, rows):
    if rows:
        print(f"\n== {title}")
        for seconds, name in sorted(rows, reverse=True)[:MOST]:
            print(f"   {seconds:7.1f} s  {name}")


def compiled(build, since):
    """[(seconds, file)] of what ninja made since then; a build that was complete has made nothing."""
    log = pathlib.Path(build, ".ninja_log")
    rows = {}
    for line in log.read_text(encoding="utf-8").splitlines()[1:] if log.is_file() else []:
        start, end, _, output, *_ = line.split("\t")
        made = pathlib.Path(build, output)
        if output.endswith((".o", ".gch")) and made.exists() and made.stat().st_mtime >= since:
            rows[output] = (int(end) - int(start)) / 1000
    return [(seconds, output) for output, seconds in rows.items()]


def read(paths):
    entries = []
    for path in paths:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        if not found:
            name = pathlib.Path(path).stem
            found = [{"name": name, "result": "failed", "seconds": 0, "reason": "its results are empty"}]
        entries += [{**entry, "part": pathlib.Path(path).parent.name} for entry in found]
    return entries


def count(entries, result):
    return sum(entry["result"] == result for entry in entries)


def print_entries(entries, result, word):
    for entry in entries:
        if entry["result"] == result:
            reason = f": {entry['reason']}" if entry["reason"] else ""
            print(f"   {word}: {entry['name']} ({entry['part']}){reason}")
            print("".join(f"      {line}\n" for line in entry.get("said", [])), end="")


def main():
    if sys.argv[1] == "--counts":
        entries = read(sys.argv[2:])
        print(", ".join(f"{count(entries, result)} {result}" for result in ("passed", "failed", "skipped")))
        return 0
    build, since, *paths = sys.argv[1:]
    entries = read(paths)
    print_entries(entries, "skipped", "skipped")
    print_table("the slowest files to compile", compiled(build, float(since)))
    print_table("the slowest tests", [(entry["seconds"], entry["name"]) for entry in entries])
    if count(entries, "failed"):
        print("\n== what failed")
        print_entries(entries, "failed", "FAILED")
    return 1 if count(entries, "failed") or not count(entries, "passed") else 0


if __name__ == "__main__":
    sys.exit(main())
