"""The source tree as the tidy rules see it: files with their text, code without comments, includes."""

import functools
import pathlib
import re

TOP_FOLDERS = ("runtime", "transports", "collectives", "apps", "bindings", "tests", "bench", "tools", "examples", ".ci")
TOP_FILES = ("meson.build", "meson_options.txt", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
CPP_SUFFIXES = (".h", ".cc")
# Not ours to format: data and pictures.
OTHER_SUFFIXES = (".png", ".svg", ".html", ".json", ".xz", ".libsvm", ".bin", ".pyc")

# Comments, strings and characters. A digit before ' makes it a separator within a number.
_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<raw>\w*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


class Source:
    """A file: `path` is relative to the root, with forward slashes."""

    def __init__(self, root, path):
        self.path = path
        self.text = (root / path).read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()

    @property
    def is_cpp(self):
        return self.path.endswith(CPP_SUFFIXES)

    @property
    def is_header(self):
        return self.path.endswith(".h")

    @property
    def floor(self):
        return self.path.split("/")[0]

    @functools.cached_property
    def code_lines(self):
        """The lines with comments and literals blanked; numbers of lines are kept."""
        blanked = _NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), self.text)
        return blanked.splitlines()

    @functools.cached_property
    def code(self):
        """The text without comments and blank lines."""
        text = _NOT_CODE.sub(lambda match: " " if match.group().startswith(("//", "/*")) else match.group(), self.text)
        return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())

    @functools.cached_property
    def includes(self):
        """(line number, 'quote' or 'angle', what is included)."""
        found = []
        for number, line in enumerate(self.lines, 1):
            if match := _INCLUDE.match(line):
                found.append((number, "quote" if match.group(1) == '"' else "angle", match.group(2)))
        return found


def read_tree(root):
    root = pathlib.Path(root)
    paths = [name for name in TOP_FILES if (root / name).is_file()]
    for folder in TOP_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix not in OTHER_SUFFIXES:
                paths.append(path.relative_to(root).as_posix())
    return [Source(root, path) for path in paths]
