#!/usr/bin/env python3
"""Writes into tests/FULL_CHECK.md which parts of tools/check --all have passed: when, on which commit, with which figures.

    record.py ROOT COMMIT RESULTS

RESULTS is a folder with one folder per part, which holds the part's results (*.json) and the seconds that it took. What
the file says of other parts stays. Records nothing of `guests`, and says so, when a test in a guest was skipped: then
RDMA was not tested.
"""

import datetime
import os
import pathlib
import sys

from report import count, read

FILE = "tests/FULL_CHECK.md"
HEAD = """# The last full check

The parts of `tools/check --all`, each as it last passed. `tools/check` writes this file itself.

| part | date | commit | minutes | passed | skipped | on |
|---|---|---|---|---|---|---|
"""
SKIPPED = "\nSkipped:\n\n"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "an unknown processor"


def recorded(path):
    """({part: its row}, {part: its lines of what was skipped}) of the file as it is."""
    rows, skips = {}, {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        if line.startswith("| ") and not line.startswith("| part |"):
            rows[line.split(" | ")[0].removeprefix("| ")] = line
        elif line.startswith("- "):
            skips.setdefault(line.split(": ")[0].removeprefix("- "), []).append(line)
    return rows, skips


def row_of(part, commit, folder, entries):
    seconds = int((folder / "seconds").read_text(encoding="utf-8"))
    return (f"| {part} | {datetime.date.today()} | {commit} | {seconds / 60:.0f} | {count(entries, 'passed')} | "
            f"{count(entries, 'skipped')} | {os.cpu_count()} cores, {processor()} |")


def main():
    root, commit, results = sys.argv[1:]
    path = pathlib.Path(root, FILE)
    rows, skips = recorded(path)
    for folder in sorted(pathlib.Path(results).iterdir()):
        part, entries = folder.name, read(sorted(folder.glob("*.json")))
        if not count(entries, "passed"):
            print(f"   {part}: not recorded in {FILE}: nothing passed")
            continue
        skipped = [entry for entry in entries if entry["result"] == "skipped"]
        if part == "guests" and skipped:
            print(f"   guests: not recorded in {FILE}: {', '.join(entry['name'] for entry in skipped)} skipped")
            continue
        rows[part] = row_of(part, commit, folder, entries)
        skips[part] = [f"- {part}: {entry['name']}: {entry['reason'] or 'no reason'}" for entry in skipped]
    lines = [line for _, found in sorted(skips.items()) for line in found]
    text = HEAD + "".join(f"{row}\n" for _, row in sorted(rows.items())) + SKIPPED
    path.write_text(text + ("".join(f"{line}\n" for line in lines) or "Nothing.\n"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
