"""A Slurm cluster for tests: one controller and two nodes, "a" and "b", all on this host.

It needs Slurm and MUNGE (Debian: slurm-wlm), and root: a node runs the jobs of other users.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time

from job import end_with_parent
from ports import free_ports

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
TmpFS={folder}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobRequeue=1
KillWait=5
NodeName=a NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8
NodeName=b NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8
PartitionName=all Nodes=a,b Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
SECONDS = 120  # the timeout of each command and wait; ten times what a loaded host needs


def missing():
    """What this host lacks for a cluster; "" if nothing."""
    for program in ("slurmctld", "slurmd", "munged", "srun"):
        if shutil.which(program, path=PATH) is None:
            return f"{program} (Debian's package slurm-wlm)"
    return "" if os.geteuid() == 0 else "root"


class Cluster:
    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="dunlin-slurm-")
        self.folder = self._folder.name
        os.chmod(self.folder, 0o755)  # MUNGE wants to know that others cannot write there
        for name in ("controller", "a", "b", "tmp-a", "tmp-b", "munge"):
            os.mkdir(os.path.join(self.folder, name), 0o700 if name == "munge" else 0o755)
        configuration = os.path.join(self.folder, "slurm.conf")
        with open(configuration, "w", encoding="ascii") as file:
            host = socket.gethostname().split(".")[0]
            first = free_ports(3)
            file.write(CONFIGURATION.format(folder=self.folder, host=host, ports=range(first, first + 3)))
        with open(self._path("munge/key"), "wb", opener=lambda path, flags: os.open(path, flags, 0o400)) as file:
            file.write(os.urandom(128))
        # Variables of a job around this one would tell srun that it runs in that job.
        self.unset = [name for name in os.environ if name.startswith("SLURM_")]
        self.variables = {"SLURM_CONF": configuration, "PATH": PATH}
        inherited = {name: value for name, value in os.environ.items() if name not in self.unset}
        self.environment = inherited | self.variables
        self._daemons = []
        try:
            munge = self._path("munge")
            files = [f"--{what}={munge}/{what}" for what in ("socket", "pid-file", "log-file", "seed-file")]
            self._start("munged", "--foreground", "--force", *files, f"--key-file={munge}/key")
            self._start("slurmctld", "-D")
            for node in ("a", "b"):
                self._start("slurmd", "-D", "-N", node)
            self.await_output("idle\nidle\n", "sinfo", "-h", "-N", "-o", "%T")
        except BaseException:
            self.close()
            raise

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _start(self, *command):
        """A daemon that ends with this process."""
        self._daemons.append(subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=end_with_parent))

    def run(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=SECONDS)

    def output(self, *command):
        done = self.run(*command)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return done.stdout

    def await_output(self, expected, *command, seconds=SECONDS):
        """Waits until the command succeeds and prints this."""
        deadline = time.monotonic() + seconds
        while (done := self.run(*command)).returncode != 0 or done.stdout != expected:
            if time.monotonic() > deadline:
                raise AssertionError(f"{command} prints {done.stdout!r}, not {expected!r}\n{done.stderr}{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        """The last lines of all daemons."""
        texts = []
        for name in ("controller.log", "a.log", "b.log"):
            try:
                with open(self._path(name), encoding="utf-8", errors="replace") as file:
                    texts.append(f"{name}:\n" + "".join(file.readlines()[-15:]))
            except FileNotFoundError:
                pass
        return "\n".join(texts)

    def close(self):
        """Ends all jobs and then the daemons."""
        try:
            if self.run("scancel", "--user=root").returncode == 0:
                self.await_output("", "squeue", "-h")
        finally:
            for daemon in reversed(self._daemons):
                daemon.terminate()
            for daemon in self._daemons:
                try:
                    daemon.wait(SECONDS)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            self._folder.cleanup()
