"""Ports for tests whose programs have to be told where to listen."""

import contextlib
import random
import socket


def free_ports(count=1):
    """The first of so many consecutive ports that are free here.

    They lie below those that Linux gives to sockets that have asked for none, which could take one at any time.
    """
    while True:
        first = random.randrange(20000, 32000)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
