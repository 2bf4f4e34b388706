"""Makes the shell script that a guest executes: what is particular to this run, followed by guest_job."""

import dataclasses
import os
import shlex
import shutil

ADDRESSES = ("10.77.0.1", "10.77.0.2")
SECOND_ADDRESSES = ("10.77.1.1", "10.77.1.2")  # of the second device at each end
# guest_init hides these directories behind empty ones. Files in them are visible only through a share.
HIDDEN = ("/tmp", "/run", "/dev/shm")
SYSTEM_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOST_PROGRAMS = ("ip", "rdma", "env")  # run inside the guest, from the host's files


@dataclasses.dataclass
class Share:
    """A directory of the host that the guest mounts at the same place."""
    path: str
    tag: str
    writable: bool


def shares(writable, readable):
    """Returns the shares, outer directories first, as they are mounted in this order. A readable directory becomes a
    share only if it would be hidden otherwise."""
    paths = {os.path.realpath(path): True for path in writable}
    for path in sorted(map(os.path.realpath, readable)):
        if inside(path, HIDDEN) and path not in HIDDEN and not inside(path, paths):
            paths[path] = False
    return [Share(path, f"share{place}", paths[path]) for place, path in enumerate(sorted(paths))]


def inside(path, directories):
    return any(os.path.commonpath([path, directory]) == directory for directory in directories)


def missing_program():
    """Returns a program that guests need and this host lacks, or None."""
    return next((name for name in HOST_PROGRAMS if not find_program(name)), None)


def find_program(name):
    return shutil.which(name, path=SYSTEM_PATHS)


def script(hosts, host, devices, shared, directory, command):
    """Returns the job as bytes, because names in the environment and the file system need not be text."""
    address, peer = ADDRESSES[host], ADDRESSES[1 - host]
    assignments = {"hosts": hosts, "host": host, "devices": devices, "address": address, "peer_address": peer,
                   "second_address": SECOND_ADDRESSES[host], "second_peer_address": SECOND_ADDRESSES[1 - host],
                   **{name: find_program(name) for name in HOST_PROGRAMS}}
    environment = {**os.environ, "SOFTROCE_HOSTS": hosts, "SOFTROCE_HOST": host, "SOFTROCE_DEVICES": devices,
                   "SOFTROCE_ADDRESS": address, "SOFTROCE_PEER_ADDRESS": peer}
    environment.pop("OLDPWD", None)
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in assignments.items()]
    lines += ["mount_shares() {", ":", *map(mount, shared), "}"]
    run = ["env", "-i", "-C", directory, "--", *(f"{name}={value}" for name, value in environment.items()), *command]
    lines += ["run_command() {", 'exec setsid "$env" ' + " ".join(map(shlex.quote, run[1:])), "}"]
    with open(os.path.join(os.path.dirname(__file__), "guest_job"), "rb") as file:
        return os.fsencode("\n".join(lines) + "\n") + file.read()


def mount(share):
    # Shared writable mappings need cache=mmap. It caches nothing else, so both sides see the same content.
    mode = "cache=mmap" if share.writable else "cache=loose,ro"
    path = shlex.quote(share.path)
    return (f"must mkdir -p {path}\n"
            f"must mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,{mode} {share.tag} {path}")
