"""Which TCP ports a process has open."""

import os
import socket


def _address(text):
    """The (address, port) of /proc/net/tcp and tcp6: words of 32 bits in the host's byte order."""
    words, port = text.split(":")
    raw = b"".join(bytes.fromhex(words[at:at + 8])[::-1] for at in range(0, len(words), 8))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)


def listening(pid):
    """Returns the (address, port) pairs at which the process listens. It is empty for a process that has ended."""
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except FileNotFoundError:  # closed in the meantime
                continue
            if target.startswith("socket:["):
                inodes.add(target[len("socket:["):-1])
        found = []
        for family in ("tcp", "tcp6"):  # those of the process's own network namespace
            with open(f"/proc/{pid}/net/{family}", encoding="ascii") as file:
                for line in list(file)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and fields[9] in inodes:
                        found.append(_address(fields[1]))
        return found
    except (FileNotFoundError, ProcessLookupError):
        return []
