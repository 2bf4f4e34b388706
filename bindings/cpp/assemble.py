#!/usr/bin/env python3
"""Assembles the public headers, as programs include them: <dunlin/...>, and nothing else of Dunlin's.

    assemble.py names              the names of the public headers, one a line
    assemble.py inputs             the files that they are assembled from, one a line
    assemble.py write FOLDER       writes them into FOLDER

The sources are dunlin/*.h beside this file. Where such a header includes an internal one with quotes, the text of
that header takes the place of the line: so a few types are the same on both sides, without their folders being
installed. What the internal header includes has to be in a public header as well, which is included instead.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_QUOTED = re.compile(r'^#include "([^"]+)"$')


def sources(here=HERE):
    """{name: text} of the public headers' sources."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((here / "dunlin").glob("*.h"))}


def embedded(texts):
    """{internal header: public header that its text becomes a part of}."""
    found = {}
    for name, text in texts.items():
        for line in text.splitlines():
            if match := _QUOTED.match(line):
                found[match.group(1)] = name
    return found


def assemble(name, texts, owners, root=ROOT):
    """The text of a public header. An internal header that no public one embeds stays included with quotes."""
    lines = []
    for line in texts[name].splitlines():
        match = _QUOTED.match(line)
        lines += _internal(match.group(1), name, owners, root) if match else [line]
    # One #pragma once, behind the comment that comes first; blank lines don't pile up.
    text = "\n".join(line for line in lines if line != "#pragma once").lstrip("\n")
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if not line.startswith(("//", "/*", " *"))), 0)
    lines = lines[:first] + ["#pragma once"] + lines[first:]
    kept = [line for number, line in enumerate(lines) if line or (number > 0 and lines[number - 1])]
    return "\n".join(kept).strip("\n") + "\n"


def _internal(path, name, owners, root):
    for line in (root / path).read_text(encoding="utf-8").splitlines():
        match = _QUOTED.match(line)
        owner = owners.get(match.group(1)) if match else None
        if owner is None:
            yield line
        elif owner != name:
            yield f"#include <dunlin/{owner}>"


def all_headers(root=ROOT):
    """{name: text} as they are installed."""
    texts = sources(root / "bindings" / "cpp")
    owners = embedded(texts)
    return {name: assemble(name, texts, owners, root) for name in texts}


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "names":
        print("\n".join(sources()))
    elif command == "inputs":
        texts = sources()
        print("\n".join([f"bindings/cpp/dunlin/{name}" for name in texts] + sorted(embedded(texts))))
    elif command == "write":
        for name, text in all_headers().items():
            (pathlib.Path(sys.argv[2]) / name).write_text(text, encoding="utf-8")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
