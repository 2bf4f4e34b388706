#!/usr/bin/env python3
"""The table of runtime/SETTINGS.md, made from what dunlin-info knows of the settings.

    settings_table.py DUNLIN-INFO > runtime/SETTINGS.md
"""

import json
import os
import subprocess
import sys

HEAD = """# Settings

Dunlin reads these variables from the environment of each rank. `dunlin-run` passes its own environment to all ranks.
Times take units (`500ms`, `8s`), and so do sizes (`16K`). A value that is out of range, and a name that begins with
`DUNLIN_` and isn't here, are errors that say so; plugins, which live in the processes of other programs, ignore unknown
names. `dunlin-info --config` prints the settings in force.

This page is made by `tests/tools/settings_table.py` from the rows in `config.cc`.

| setting | default | values | meaning |
|---|---|---|---|
"""


def cell(text):
    return text.replace("|", "\\|")


def page(program):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
    printed = subprocess.run([program, "--config", "--json"], check=True, capture_output=True, text=True, env=clean).stdout
    rows = []
    for name, setting in json.loads(printed).items():
        default = f"`{setting['default']}`" if setting["default"] else ""
        values = " ".join(part for part in (setting["range"], setting["unit"]) if part)
        meaning = setting["help"][0].upper() + setting["help"][1:]
        rows.append(f"| `{name}` | {default} | {cell(values)} | {cell(meaning)} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1]))
