"""Says, for Meson, where an installation makes packages visible to this interpreter: find_site.py PREFIX CHOICE.

CHOICE is Meson's folder. It is printed if the interpreter looks there. Otherwise the first folder below PREFIX that the
interpreter looks into is printed, or nothing where there is none. Debian's interpreter, for one, looks into
/usr/local/lib/python3.11/dist-packages, and Meson chooses /usr/local/lib/python3/dist-packages.
"""

import os
import site
import sys


def find(prefix, choice, searched):
    """The folder to install to, or None."""
    if choice in searched:
        return choice
    return next((folder for folder in searched if os.path.commonpath([prefix, folder]) == prefix), None)


if __name__ == "__main__":
    normal = [os.path.normpath(path) for path in sys.argv[1:]]
    print(find(*normal, [os.path.normpath(folder) for folder in site.getsitepackages()]) or "")
