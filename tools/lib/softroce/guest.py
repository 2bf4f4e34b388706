"""One QEMU process: its command line, its channels, and its messages.

Every channel is a socket pair whose other end QEMU inherits, and so is the link between two guests. No file, port
or directory is made, so nothing can be left behind. The control channel carries lines; see guest_job.
"""

import asyncio
import os
import resource
import shutil
import socket
import subprocess

QEMU = "qemu-system-x86_64"
# A boot takes about 5 s on an idle host. On a busy one it takes much longer, but hardly more processor time. So the
# limit of an emulated boot is one of processor time, which ends a guest that spins; the time on the clock ends one that
# sleeps.
BOOT_PROCESSOR_LIMIT_S = 300
BOOT_LIMIT_S = 900
KVM_BOOT_LIMIT_S = 60  # a KVM that fails does so at once; this limit is for one that hangs
LOG_KEPT_BYTES = 1 << 20
LOG_SHOWN_LINES = 60
# No self-tests, no mitigations, no wait for randomness: each is slow under emulation and protects nothing here.
# An oops ends the guest, which would otherwise keep its locks and hang.
KERNEL_OPTIONS = ("console=ttyS0 panic=-1 oops=panic mitigations=off random.trust_cpu=on cryptomgr.notests audit=0 "
                  "apparmor=0 tsc=reliable no_timer_check 8250.nr_uarts=1 net.ifnames=0")


class GuestFailed(Exception):
    """The guest or QEMU ended, or did not boot. The text says what is known."""


class Guest:
    """Belongs to the thread of the event loop. kill() must be called in the end."""

    def __init__(self, host, image, accelerator, settings, shared, cables=()):
        self.host = host
        self.log = bytearray()  # the end of the kernel's log
        self.awaited = "the guest's kernel to start"  # what its boot waits for
        self._arguments = machine(image, accelerator, settings) + devices(shared)
        self._descriptors = []
        self._cables = cables  # sockets, one for each network card
        self._process = self._control = self._complaints = self._reading_log = None
        self.output = self.errors = None  # asyncio.StreamReaders of what the command writes

    async def start(self):
        for number, cable in enumerate(self._cables):
            self._pass("-netdev", f"socket,id=link{number},fd={{}}", cable)
            # An empty romfile= keeps the firmware from loading a boot program for the network card.
            self._arguments += ["-device", f"virtio-net-pci,netdev=link{number},"
                                f"mac=02:00:00:00:0{number}:0{self.host + 1},host_mtu=9000,romfile="]
        log = self._channel("log")
        self._arguments += ["-serial", "chardev:log"]
        control, output, errors = (self._port(number, name) for number, name in enumerate(("control", "out", "err"), 1))
        # Ends QEMU even when this process is killed by SIGKILL.
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
        """Returns this process's end of a new channel."""
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

    def processor_s(self):
        """Seconds of processor time that QEMU has used; 0 when it has ended."""
        try:
            with open(f"/proc/{self._process.pid}/stat", encoding="ascii", errors="replace") as file:
                user, system = file.read().rpartition(")")[2].split()[11:13]
        except (OSError, AttributeError, ValueError):
            return 0
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    async def receive(self, expected):
        """Returns the rest of the guest's next line, which must begin with the expected word."""
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
        """Ends QEMU. What is left to read of the output ends then, too."""
        if not self._process:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        if self._reading_log:
            await self._reading_log


def prepare_process():
    """Runs in the child process, before it becomes QEMU."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # With autogroups in the kernel, a session is a scheduling group, and niceness counts only within it. The group gets
    # the niceness of this process; otherwise `nice softroce` would change nothing.
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as group:
            group.write(str(os.getpriority(os.PRIO_PROCESS, 0)))
    except OSError:
        pass  # there are no such groups, or this niceness may not be given to a group


async def reader_of(end):
    return (await asyncio.open_connection(sock=end))[0]


def accelerators(settings):
    """Returns those to try, the fastest first. Whether KVM can run a guest shows only when QEMU starts it."""
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
    path = path.replace(",", ",,")  # QEMU writes a comma in a value so
    mode = "off" if writable else "on"
    return ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly={mode},multidevs=remap",
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
