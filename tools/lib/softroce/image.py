"""The guest's kernel and initramfs: fetched as Debian packages, never installed, and kept in a cache folder.

The folder holds packages/ (the fetched packages), an image folder for each recipe (the files made from them) and a
lock. It can be deleted at any time. A recipe is everything in this module that decides what the initramfs contains.
"""

import dataclasses
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import time

KERNEL = "linux-image-amd64"  # depends on the package of the current version
BUSYBOX = "busybox-static"
MODULES = (  # the modules that they depend on are added; loaded in this order
    "virtio_pci", "virtio_console", "9pnet_virtio", "9p",  # for the ports and for the host's files
    "virtio_net", "veth",  # for interfaces of rxe devices
    "sch_netem",  # loss, delay and reordering, for tc
    "crc32_generic",  # rdma_rxe requests it by name when a device is added
    "rdma_rxe", "rdma_ucm", "ib_umad",
)
INIT = os.path.join(os.path.dirname(__file__), "guest_init")
UNUSED_FOR_S = 7 * 86400  # an image of another recipe is deleted after this time
# A mirror that does not answer should not delay a run that can be skipped.
APT = ("-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20")


class Unavailable(Exception):
    """Something that is necessary does not exist for this host: a program, or Debian's kernel. The text says what."""


class Failed(Exception):
    """What should work here did not: apt, or its packages are not as expected. The text says why."""


@dataclasses.dataclass
class Image:
    kernel: str  # path
    initramfs: str  # path


def prepare(cache):
    """Returns the Image in the cache folder, and makes it if necessary. Other processes may do the same at once."""
    made = os.path.join(cache, "image-" + recipe())
    image = Image(os.path.join(made, "kernel"), os.path.join(made, "initramfs"))
    if os.path.isdir(made):
        os.utime(made)
        return image
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_leftovers(cache)
        if not os.path.isdir(made):
            make(cache, made)
    return image


def recipe():
    with open(INIT, "rb") as init, open(__file__, "rb") as this:
        return hashlib.sha256(init.read() + this.read()).hexdigest()[:12]


def remove_leftovers(cache):
    """Removes what killed processes left, and images that were not used for long. The caller holds the lock."""
    unfinished, images = (glob.glob(os.path.join(glob.escape(cache), name)) for name in ("unfinished-*", "image-*"))
    for path in unfinished + [path for path in images if os.path.getmtime(path) < time.time() - UNUSED_FOR_S]:
        shutil.rmtree(path, ignore_errors=True)


def make(cache, made):
    with tempfile.TemporaryDirectory(dir=cache, prefix="unfinished-") as work:
        packages = os.path.join(cache, "packages")
        os.makedirs(packages, exist_ok=True)
        root, ready = os.path.join(work, "root"), os.path.join(work, "ready")
        kernel_package = newest(packages, "linux-image-*") or fetch(kernel_name, packages, work)
        for package in kernel_package, newest(packages, BUSYBOX) or fetch(lambda: BUSYBOX, packages, work):
            run_tool("dpkg", "-x", package, root)
        os.mkdir(ready)
        with open(only(os.path.join(root, "boot/vmlinuz-*")), "rb") as file:
            kernel = file.read()
        with open(os.path.join(ready, "kernel"), "wb") as file:
            file.write(unpacked_kernel(kernel) or kernel)
        with open(os.path.join(ready, "initramfs"), "wb") as file:
            file.write(initramfs(root))
        os.rename(ready, made)


def only(pattern):
    found = glob.glob(pattern)
    if len(found) != 1:
        raise Failed(f"there are {len(found)} files like {os.path.basename(pattern)}, and not one")
    return found[0]


# Packages --------------------------------------------------------------------------------------

def newest(packages, name):
    """Returns the path of a package that was fetched before, or None."""
    return max(glob.glob(os.path.join(glob.escape(packages), f"{name}_*.deb")), key=os.path.getmtime, default=None)


def kernel_name():
    """Returns the package of the current kernel: KERNEL only depends on it."""
    try:
        found = re.search(r"Depends: (linux-image-\S+)", run_tool("apt-cache", "depends", KERNEL))
    except Failed:
        found = None
    if found:
        return found[1]
    if not is_debian():
        raise Unavailable(f"this is not Debian: apt knows no package {KERNEL}")
    raise Failed(f"apt knows no package {KERNEL}; as root: apt-get update")


def is_debian(path="/etc/os-release"):
    try:
        with open(path, encoding="utf-8") as file:
            return "ID=debian" in (line.strip().replace('"', "") for line in file)
    except OSError:
        return False


def fetch(name, packages, work):
    """Downloads the package that name() names, and returns its path. As root, updates apt's lists when that fails."""
    try:
        return download(name(), packages, work)
    except Failed:
        if os.geteuid() != 0:
            raise
    run_tool("apt-get", *APT, "update")
    return download(name(), packages, work)


def download(name, packages, work):
    run_tool("apt-get", *APT, "download", name, cwd=work)
    package = only(os.path.join(glob.escape(work), f"{name}_*.deb"))
    return shutil.move(package, packages)


def run_tool(*command, cwd=None):
    """Returns its standard output. The last line of its standard error says why it failed."""
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env={**os.environ, "LC_ALL": "C"})
    except FileNotFoundError:
        raise Unavailable(f"no program {command[0]}; the guest's kernel comes as a Debian package") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        verb = next((word for word in command[1:] if word in ("download", "update", "depends", "-x")), "")
        raise Failed(f"{command[0]} {verb} {os.path.basename(command[-1])}: {reason}")
    return done.stdout


# Kernel ----------------------------------------------------------------------------------------

def unpacked_kernel(packed):
    """Returns the ELF file inside a bzImage, or None when it is not packed as Debian 12 does it.

    QEMU starts it through its PVH entry. Unpacking it under emulation would double the time to boot. The
    offsets are those of the kernel's Documentation/x86/boot.rst.
    """
    setup_sectors = packed[0x1F1] or 4
    offset, length = struct.unpack_from("<II", packed, 0x248)
    payload = memoryview(packed)[(setup_sectors + 1) * 512 + offset:][:length]
    if bytes(payload[:6]) != b"\xfd7zXZ\0":
        return None
    return lzma.LZMADecompressor().decompress(payload)


# Initramfs -------------------------------------------------------------------------------------

def initramfs(root):
    """Makes a cpio archive: guest_init, busybox and the modules, whose names begin with their place in the order."""
    with open(INIT, "rb") as file:
        init = file.read()
    with open(os.path.join(root, "bin/busybox"), "rb") as file:
        busybox = file.read()
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in ("bin", "dev", "host", "modules", "proc", "sys")]
    entries += [("init", stat.S_IFREG | 0o755, init), ("bin/busybox", stat.S_IFREG | 0o755, busybox)]
    for place, (name, module) in enumerate(modules(root).items()):
        entries.append((f"modules/{place:02}-{name}", stat.S_IFREG | 0o644, module))
    return b"".join(cpio_entry(place, *entry) for place, entry in enumerate(entries + [("TRAILER!!!", 0, b"")], 1))


def cpio_entry(number, name, mode, content):
    """The kernel's Documentation/driver-api/early-userspace/buffer-format.rst, format "newc"."""
    name = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return pad(header) + pad(content)


def pad(part):
    return part + bytes(-len(part) % 4)


def modules(root):
    """Returns {name: content} of MODULES and of the modules that they depend on, in the order of loading."""
    folder = only(os.path.join(root, "lib/modules/*"))
    paths = {}
    for path in glob.iglob(os.path.join(folder, "kernel/**/*.ko*"), recursive=True):
        paths[module_name(path)] = path
    with open(os.path.join(folder, "modules.builtin"), encoding="utf-8") as file:
        built_in = {module_name(line.strip()) for line in file}
    loaded = {}

    def add(name):
        if name in loaded or name in built_in:
            return
        if name not in paths:
            raise Failed(f"the kernel package has no module {name}")
        content = module_content(paths[name])
        needed = re.search(rb"\0depends=([^\0]*)\0", content)
        for other in needed[1].decode().split(",") if needed and needed[1] else ():
            add(other.replace("-", "_"))
        loaded[name] = content

    for name in MODULES:
        add(name)
    return loaded


def module_name(path):
    return os.path.basename(path).split(".")[0].replace("-", "_")


def module_content(path):
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        return file.read()
