#!/usr/bin/env python3
"""Prints what has to be built for the tests of some suites, a file per line.

    test_targets.py BUILD_DIR SUITE...
"""

import json
import os
import subprocess
import sys


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", what, build], check=True, capture_output=True).stdout)


def main():
    build, *suites = sys.argv[1:]
    files_of = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    built = {file for files in files_of.values() for file in files}
    needed = set()
    for test in introspect(build, "--tests"):
        # "PROJECT:SUITE"
        if not any(suite.split(":")[-1] in suites for suite in test["suite"]):
            continue
        needed.update(built.intersection(test["cmd"]))
        for target in test["depends"]:
            needed.update(files_of[target])
    for file in sorted(needed):
        print(os.path.relpath(file, build))


if __name__ == "__main__":
    main()
