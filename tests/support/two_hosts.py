"""Two hosts for tests: network namespaces joined by a veth pair. They need root and iproute2."""

import os
import shutil
import subprocess
import time
import unittest

ADDRESSES = ["10.211.7.1", "10.211.7.2"]
# Each host has another network, which leads to nobody.
OTHER_ADDRESSES = ["10.211.71.1", "10.211.72.1"]


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class TwoHostsTest(unittest.TestCase):
    names = [f"dunlin-{os.getpid()}-{side}" for side in "ab"]

    def setUp(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root and iproute2")
        self.addCleanup(self.remove_hosts)
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", "dunlin0", "netns", self.names[0], "type", "veth", "peer", "name", "dunlin0", "netns",
               self.names[1])
            for name, address, other in zip(self.names, ADDRESSES, OTHER_ADDRESSES):
                ip("-n", name, "link", "add", "other0", "type", "veth", "peer", "name", "other1")
                for device, its_address in (("dunlin0", address), ("other0", other)):
                    ip("-n", name, "address", "add", f"{its_address}/24", "dev", device)
                for device in ("dunlin0", "other0", "other1", "lo"):
                    ip("-n", name, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces here: {error.stderr.strip()}")
        for name in self.names:
            self.await_link(name)

    def await_link(self, name):
        """UCX leaves out interfaces that are not up yet when it starts."""
        for _ in range(200):
            shown = subprocess.run(["ip", "-n", name, "-brief", "link", "show", "dunlin0"], capture_output=True, text=True)
            if shown.stdout.split()[1:2] == ["UP"]:
                return
            time.sleep(0.05)
        self.fail(f"the link in {name} does not come up: {shown.stdout}")

    def remove_hosts(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def on_host(self, host, command):
        return ["ip", "netns", "exec", self.names[host], "env", "UCX_NET_DEVICES=dunlin0", *command]
