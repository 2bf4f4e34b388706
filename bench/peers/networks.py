"""Hosts that are network namespaces of this one, joined by a bridge whose ports have a limited rate."""
import os
import shlex
import shutil
import subprocess
import time

from peer import Failed, execute


UNLIMITED = "unlimited"


class Loopback:
    """All ranks on this host, over its loopback."""

    name = "loopback"
    transport_devices = "lo"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @staticmethod
    def hosts(count):
        """The ranks' places as tcp_limit and tcp_gloo read them."""
        return ["127.0.0.1"] * count

    @staticmethod
    def inside(_, command):
        return command

    @staticmethod
    def address(_):
        return "127.0.0.1"


class Shaped:
    """`count` hosts, a namespace each. Every link carries `rate` in each direction (tbf); "unlimited": no limit."""

    transport_devices = "eth0"
    subnet = "10.211.8"

    def __init__(self, rate, count):
        self.rate = rate
        self.name = rate
        self.count = count
        self.prefix = f"dunlin-{os.getpid()}"

    @staticmethod
    def missing():
        absent = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
        if os.geteuid() != 0:
            absent.append("root")
        return absent

    def namespace(self, host):
        return f"{self.prefix}-{host}"

    def address(self, rank):
        return f"{self.subnet}.{rank + 1}"

    def hosts(self, count):
        return [f"{self.address(rank)}@{self.namespace(rank)}" for rank in range(count)]

    def inside(self, rank, command):
        return ["ip", "netns", "exec", self.namespace(rank), *command]

    def agent(self, directory):
        """Returns a program that stands in for ssh in Open MPI, whose daemons tell hosts apart by their names."""
        path = directory / "agent"
        path.write_text("#!/bin/sh\nhost=$1\nshift\nindex=$((${host##*.} - 1))\n"
                        f"exec ip netns exec {self.prefix}-$index unshare -u sh -c \"hostname host$index; $*\"\n",
                        encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def __enter__(self):
        try:
            self.lay()
        except Failed:
            self.__exit__()
            raise
        return self

    def lay(self):
        switch = self.namespace("switch")
        run = lambda text: execute(shlex.split(text))  # noqa: E731
        run(f"ip netns add {switch}")
        run(f"ip -n {switch} link add bridge type bridge")
        run(f"ip -n {switch} link set bridge up")
        for rank in range(self.count):
            host = self.namespace(rank)
            run(f"ip netns add {host}")
            run(f"ip link add eth0 netns {host} type veth peer name port{rank} netns {switch}")
            run(f"ip -n {host} address add {self.address(rank)}/24 dev eth0")
            run(f"ip -n {switch} link set port{rank} master bridge")
            for name, device in ((host, "eth0"), (host, "lo"), (switch, f"port{rank}")):
                run(f"ip -n {name} link set {device} up")
            for name, device in ((host, "eth0"), (switch, f"port{rank}")) if self.rate != UNLIMITED else ():
                run(f"tc -n {name} qdisc add dev {device} root tbf rate {self.rate} burst 1mb latency 10ms")
        for rank in range(1, self.count):
            self.await_answer(rank)

    def await_answer(self, rank):
        """Until the bridge forwards, and each of the two knows the other's link address."""
        probe = ["python3", "-c", "import socket, sys\ntry: socket.create_connection((sys.argv[1], 9), 1)\n"
                 "except ConnectionRefusedError: pass", self.address(rank)]
        for _ in range(50):
            if subprocess.run(self.inside(0, probe), capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise Failed(f"no packet comes from {self.namespace(0)} to {self.namespace(rank)}")

    def __exit__(self, *_):
        for rank in [*range(self.count), "switch"]:
            subprocess.run(["ip", "netns", "delete", self.namespace(rank)], capture_output=True, check=False)
