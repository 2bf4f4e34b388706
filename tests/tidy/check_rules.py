#!/usr/bin/env python3
"""Checks the source tree against rules.py; prints "file:line: why" per violation, exits 1 if any.

    check_rules.py ROOT [PUBLIC_HEADER...]
"""

import os
import sys

import rules
import source


def main():
    root, *public = sys.argv[1:]
    found = list(rules.violations(source.read_tree(root), {os.path.relpath(path, root) for path in public}))
    print("\n".join(found) if found else "no violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
