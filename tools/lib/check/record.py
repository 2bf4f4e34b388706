#!/usr/bin/env python3
"""Writes tests/FULL_CHECK.md: that tools/check --all passed, when, where, what it skipped, and how long its parts took.

    record.py ROOT COMMIT SECONDS RESULTS...

Writes nothing, and says so, when a test in a guest was skipped: then RDMA was not tested.
"""

import datetime
import os
import pathlib
import sys

from report import count, read


FILE = "tests/FULL_CHECK.md"
GUESTS = "tests-guest.json"


def skips(entries):
    """Lines with the names and reasons."""
    return [f"{entry['name']}: {entry['reason'] or 'no reason'}" for entry in entries if entry["result"] == "skipped"]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "an unknown processor"


def main():
    root, commit, seconds, *paths = sys.argv[1:]
    guests = read([path for path in paths if pathlib.Path(path).name == GUESTS])
    if not guests:
        print(f"   not recorded in {FILE}: no tests ran in guests")
        return 1
    if skipped := [entry for entry in guests if entry["result"] == "skipped"]:
        print(f"   not recorded in {FILE}: in guests, {', '.join(entry['name'] for entry in skipped)} skipped")
        return 0
    entries = read(paths)
    slowest = sorted(entries, key=lambda entry: -entry["seconds"])[:10]
    text = f"""# The last full check

`tools/check --all` passed. It writes this file itself.

- date: {datetime.date.today()}
- commit: {commit}
- on: {os.cpu_count()} cores, {processor()}
- time: {int(seconds) // 60} minutes
- tests: {count(entries, "passed")} passed, {count(entries, "failed")} failed, {count(entries, "skipped")} skipped

| seconds | slowest |
|---|---|
"""
    text += "".join(f"| {entry['seconds']:.0f} | {entry['name']} |\n" for entry in slowest)
    text += "\nSkipped:\n\n" + ("".join(f"- {skip}\n" for skip in skips(entries)) or "- nothing\n")
    pathlib.Path(root, FILE).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
