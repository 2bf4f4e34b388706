"""One QEMU process: how it is started, its channels, and what it says.

Every channel is a socket pair whose other end QEMU inherits, the link between two guests too: no file, port
or directory is made, so nothing can be left behind. The control channel carries lines; see guest_job.
"""

import asyncio
import os
import resource
import shutil
import socket
import subprocess

QEMU = "qemu-system-x86_64"
BOOT_LIMIT_S = 180  # emulated, on a busy machine; 5 s are usual
KVM_BOOT_LIMIT_S = 20  # where it fails it does so at once; this is for one that hangs
LOG_KEPT_BYTES = 1 << 20
LOG_SHOWN_LINES = 60
# No self-tests, no mitigations, no wait for randomness: each is slow under emulation and guards nothing here.
# An oops ends the guest, where it would otherwise keep its locks and hang.
KERNEL_OPTIONS = ("console=ttyS0 panic=-1 oops=panic mitigations=off random.trust_cpu=on cryptomgr.notests audit=0 "
                  "apparmor=0 tsc=reliable no_timer_check 8250.nr_uarts=1 net.ifnames=0")


class GuestFailed(Exception):
    """The guest or QEMU ended, or never came up; its text says what is known."""


class Guest:
    """Belongs to the event loop's thread. kill() must be called in the end."""

    def __init__(self, host, image, accelerator, settings, shared, cables=()):
        self.host = host
        self.log = bytearray()  # the guest's kernel's, the last of it
        self._arguments = machine(image, accelerator, settings) + devices(shared)
        self._descriptors = []
        self._cables = cables  # sockets, one for each network card
        self._process = self._control = self._complaints = self._reading_log = None
        self.output = self.errors = None  # asyncio.StreamReaders: what the command writes

    async def start(self):
        for number, cable in enumerate(self._cables):
            self._pass("-netdev", f"socket,id=link{number},fd={{}}", cable)
            # Without romfile= the firmware loads a boot program for the network card.
            self._arguments += ["-device", f"virtio-net-pci,netdev=link{number},"
                                f"mac=02:00:00:00:0{number}:0{self.host + 1},host_mtu=9000,romfile="]
        log = self._channel("log")
        self._arguments += ["-serial", "chardev:log"]
        control, output, errors = (self._port(number, name) for number, name in enumerate(("control", "out", "err"), 1))
        # Ends QEMU even where this process is killed by SIGKILL.
        wrapper = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        try:
            self._process = await asyncio.create_subprocess_exec(
                *wrapper, *self._arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                pass_fds=[end.fileno() for end in self._descriptors], start_new_session=True,
                preexec_fn=prepare_process)
        finally:
            for end in self._descriptors:
                end.close()
        self._complaints = asyncio.create_task(self._process.stderr.read())
        self._reading_log = asyncio.create_task(self._read_log(await reader_of(log)))
        self.output, self.errors = await reader_of(output), await reader_of(errors)
        self._control = await asyncio.open_connection(sock=control)

    def _channel(self, name):
        """Our end of a new channel."""
        ours, theirs = socket.socketpair()
        self._pass("-chardev", f"socket,id={name},fd={{}}", theirs)
        return ours

    def _port(self, number, name):
        ours = self._channel(name)
        self._arguments += ["-device", f"virtserialport,chardev={name},nr={number}"]
        return ours

    def _pass(self, option, value, end):
        self._descriptors.append(end)
        self._arguments += [option, value.format(end.fileno())]

    async def _read_log(self, reader):
        while chunk := await reader.read(1 << 16):
            self.log += chunk.replace(b"\r", b"")
            del self.log[:-LOG_KEPT_BYTES]

    def send(self, data):
        self._control[1].write(data)

    async def receive(self, expected):
        """The rest of the guest's next line, which begins with the word."""
        line = (await self._control[0].readline()).decode(errors="replace").rstrip("\n")
        word, _, rest = line.partition(" ")
        if word == expected:
            return rest
        if word == "failed":
            raise GuestFailed(f"the guest could not be set up: {rest}")
        raise GuestFailed(await self._cause_of_end())

    async def _cause_of_end(self):
        code = await self._process.wait()
        complaints = (await self._complaints).decode(errors="replace").strip()
        await self._reading_log
        if code != 0:
            return f"{QEMU} ended with {code}: {complaints or 'no message'}"
        log = self.log.decode(errors="replace").splitlines()
        panicked = any("Kernel panic" in line for line in log)
        what = "the guest's kernel panicked" if panicked else "the guest switched itself off"
        return "\n".join([f"{what}; the end of its log:"] + log[-LOG_SHOWN_LINES:])

    async def kill(self):
        """Afterwards, what is left to read of the output ends."""
        if not self._process:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        if self._reading_log:
            await self._reading_log


def prepare_process():
    """In QEMU's process, before it is QEMU."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A session is a scheduling group of its own where the kernel has those (autogroups), and niceness counts only
    # within it. So the group gets ours, or `nice softroce` would change nothing.
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as group:
            group.write(str(os.getpriority(os.PRIO_PROCESS, 0)))
    except OSError:
        pass  # no such groups, or a niceness that was granted to this process may not be given to a group


async def reader_of(end):
    return (await asyncio.open_connection(sock=end))[0]


def accelerators(settings):
    """Those worth a try, the fastest first. That a KVM can't run a guest shows only when QEMU starts it."""
    return ["kvm", "tcg"] if not settings.emulate and os.access("/dev/kvm", os.R_OK | os.W_OK) else ["tcg"]


def machine(image, accelerator, settings):
    options = KERNEL_OPTIONS + ("" if settings.keep_log else " quiet")
    return [QEMU, "-accel", accelerator, "-cpu", "max", "-machine", "pc", "-smp", str(settings.cpus),
            "-m", str(settings.memory), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-kernel", image.kernel, "-initrd", image.initramfs, "-append", options,
            "-device", "virtio-serial-pci"]  # the first virtio device, so that its ports are /dev/vport0p*


def devices(shared):
    arguments = file_system("root", "/", False)
    for share in shared:
        arguments += file_system(share.tag, share.path, share.writable)
    return arguments


def file_system(tag, path, writable):
    path = path.replace(",", ",,")  # QEMU's way to have one in a value
    mode = "off" if writable else "on"
    return ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly={mode},multidevs=remap",
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
