"""Shows that the fuzzers would link: what their sources call of Dunlin is defined by one of them.

    links_test.py BUILD SOURCE...

The objects are those that BUILD has compiled of the sources for its libraries and tests.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

OURS = re.compile(r"_Z.*6dunlin")


def objects_of(build, sources):
    """{source: its object}; the first one, where several targets compile it."""
    wanted = {os.path.realpath(build / source) for source in sources}
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = os.path.realpath(build / entry["file"])
        if path in wanted and (build / entry["output"]).is_file():
            found.setdefault(path, build / entry["output"])
    if missing := wanted - found.keys():
        sys.exit(f"not compiled in {build}: {', '.join(sorted(missing))}")
    return found


def symbols_of(path):
    """(what an object defines, what it needs), of Dunlin."""
    lines = subprocess.run(["nm", "-P", path], capture_output=True, text=True, check=True).stdout.splitlines()
    named = [line.split()[:2] for line in lines]
    ours = [(name, kind) for name, kind in named if OURS.match(name)]
    return {name for name, kind in ours if kind not in "Uwv"}, {name for name, kind in ours if kind == "U"}


def main():
    build = pathlib.Path(sys.argv[1])
    symbols = {path: symbols_of(found) for path, found in objects_of(build, sys.argv[2:]).items()}
    defined = set().union(*(defines for defines, _ in symbols.values()))
    missing = {(name, path) for path, (_, needs) in symbols.items() for name in needs - defined}
    for name, path in sorted(missing):
        readable = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
        print(f"{os.path.relpath(path, build)} needs {readable}: add its source to fuzzed_sources in tests/fuzz/meson.build")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
