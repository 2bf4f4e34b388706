#!/usr/bin/env python3
"""Counts the results in Meson's testlog.json files.

    summarize_tests.py TESTLOG...

Prints a line per test that failed or was skipped (with the reason that it gave), and last
"PASSED FAILED SKIPPED", three numbers.
"""

import json
import sys

PASSED = ("OK", "EXPECTEDFAIL")
SKIPPED = ("SKIP", "IGNORED")


def reason(test):
    """The last thing that a skipped test said."""
    lines = [line for line in test.get("stdout", "").splitlines() if line.strip()]
    return f": {lines[-1]}" if lines else ""


def main():
    passed = failed = skipped = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            for test in map(json.loads, file):
                if test["result"] in PASSED:
                    passed += 1
                elif test["result"] in SKIPPED:
                    skipped += 1
                    print(f"   skipped: {test['name']}{reason(test)}")
                else:
                    failed += 1
                    print(f"   FAILED: {test['name']} ({test['result'].lower()})")
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
