#!/usr/bin/env python3
"""Builds with ninja, showing how far it is; prints what the compiler says when it fails or warns.

    compile.py BUILD_DIR JOBS [TARGET...]
"""

import sys

import progress


def main():
    build, jobs, *targets = sys.argv[1:]
    code, lines, _ = progress.run(["ninja", "-C", build, "-j", jobs, *targets], "compiled and linked")
    said = [line for line in lines if line.strip() and not line.startswith("ninja: ")]
    print("\n".join(said[-200:] if code else said), file=sys.stderr if code else sys.stdout, end="\n" if said else "")
    return code


if __name__ == "__main__":
    sys.exit(main())
