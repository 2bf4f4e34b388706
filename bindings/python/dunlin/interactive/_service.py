"""`start` and `stop`: a cluster from its start to its end.

`start` runs as long as the cluster. Its children end with it: the controller and dunlin-run get SIGTERM from the kernel
if `start` is killed, and each of them ends its own children.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time

import dunlin.errors
from dunlin.interactive._launcher import EngineLauncher
from dunlin.interactive._profile import Profile
from dunlin.interactive._requirements import ipyparallel
import psutil
import zmq
from ipyparallel.cluster.launcher import LocalControllerLauncher

# While engines start, one has to come in each such span: many engines on few cores come one after another.
REGISTRATION_SPAN = 120  # seconds
POLL_INTERVAL = 0.2  # seconds
# A cluster ends within the times that dunlin-run and the controller have, which are 20 s and 5 s.
STOP_TIMEOUT = 60  # seconds
# The end of the engines' output that an error shows, in lines.
SHOWN_LINES = 30

# Runs a command that gets SIGTERM when this process ends (PR_SET_PDEATHSIG). The parent may have ended before.
_END_WITH_PARENT = [sys.executable, "-S", "-c",
                    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15)\n"
                    "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"]


def _say(text):
    """Prints a line. A terminal that was closed does not keep the cluster from its end."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


class _Controller(LocalControllerLauncher):
    def find_args(self):
        return [*_END_WITH_PARENT, str(os.getpid()), *super().find_args()]


class _Engines(EngineLauncher):
    def find_args(self):
        return [*_END_WITH_PARENT, str(os.getpid()), *super().find_args()]


class StartError(Exception):
    """The cluster could not be started, or has ended by itself. The text says why."""


def start(profile_name, ranks, dunlin_run_args):
    """Runs a cluster until a signal ends it. Returns an exit code."""
    profile = Profile(profile_name)
    profile.create()
    try:
        _take_over(profile)
    except dunlin.errors.AlreadyExistsError as error:
        raise StartError(f"{error}: stop it by `python3 -m dunlin.interactive stop{profile.option()}`, or start "
                         "another one with --profile NAME") from None
    try:
        profile.publish(ranks, is_ready=False)
        # Without encryption, other users of this host could subscribe to what the engines print.
        if zmq.has("curve"):
            os.environ.setdefault("IPP_ENABLE_CURVE", "1")
        return asyncio.run(_Service(profile, ranks, dunlin_run_args).run())
    finally:
        profile.clean(os.getpid())
        profile.unlock()


def stop(profile_name):
    """Ends the cluster of the profile, and returns when nothing of it runs any more."""
    profile = Profile(profile_name)
    try:
        cluster = profile.running_cluster()
    except dunlin.errors.UnavailableError:
        if profile.was_killed():
            _take_over(profile)
            profile.unlock()
        raise
    if cluster.host != socket.gethostname():
        raise StartError(f"the cluster runs on the host {cluster.host}: stop it there")
    os.kill(cluster.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT
    while time.monotonic() < deadline:
        try:
            if profile.running_cluster().pid != cluster.pid:
                return
        except dunlin.errors.UnavailableError:
            return
        time.sleep(POLL_INTERVAL)
    raise StartError(f"process {cluster.pid} has not ended the cluster within {STOP_TIMEOUT} s")


def _take_over(profile):
    """Locks the profile. Of a former `start` that was killed, waits for its children, which end soon, and then removes
    its files."""
    former = profile.lock()
    deadline = time.monotonic() + STOP_TIMEOUT
    while _runs(profile.cluster_file):
        # A cluster of `ipcluster start` has the same connection files.
        if former is None or time.monotonic() > deadline:
            profile.unlock()
            raise StartError(f"ipcluster runs a cluster in the profile {profile.name!r}: stop it, or use another "
                             "profile")
        time.sleep(POLL_INTERVAL)
    if former is not None:
        profile.clean(former)


def _runs(cluster_file):
    """Whether a process of the cluster runs that ipyparallel has described in this file."""
    try:
        with open(cluster_file, encoding="utf-8") as file:
            state = json.load(file)
    except (FileNotFoundError, ValueError):
        return False
    parts = [(state.get("controller") or {}).get("state") or {}, *(state.get("engines") or {}).get("sets", {}).values()]
    for part in parts:
        with contextlib.suppress(psutil.Error):
            command = " ".join(psutil.Process(part.get("pid", -1)).cmdline())
            # Not another process that has got the same number since.
            if "ipyparallel" in command or "dunlin.interactive" in command:
                return True
    return False


def _silent_log():
    log = logging.getLogger("dunlin.interactive")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return log


class _Service:
    """One cluster, on the event loop of the main thread: its children end with the thread that has started them."""

    def __init__(self, profile, ranks, dunlin_run_args):
        self._profile = profile
        self._ranks = ranks
        self._cluster = ipyparallel.Cluster(
            profile_dir=profile.folder, cluster_id="", n=ranks, controller_launcher_class=_Controller,
            engine_launcher_class=_Engines, controller_ip="127.0.0.1", controller_location="127.0.0.1",
            shutdown_atexit=False, log=_silent_log())
        self._dunlin_run_args = dunlin_run_args
        self._engines = None
        self._read = 0  # bytes of dunlin-run's output
        self._deaths = 0
        self._signal = None

    async def run(self):
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end_by_signal, number)
        try:
            await self._start()
            while self._signal is None and not self._is_over():
                self._tell_deaths()
                await asyncio.sleep(POLL_INTERVAL)
        finally:
            await self._stop()
        _say("The cluster has ended.")
        return 0

    def _end_by_signal(self, number):
        if self._signal is None:
            self._signal = number
            _say("\nEnding the cluster ..." if number == signal.SIGINT else "Ending the cluster ...")

    async def _start(self):
        """Returns when all engines have registered, or at a signal."""
        _say(f"Starting {self._ranks} engines ...")
        await self._cluster.start_controller()
        try:
            await self._cluster.controller.get_connection_info()
        except (RuntimeError, TimeoutError) as error:
            raise StartError(f"{error}:\n{self._cluster.controller.get_output()}") from None
        name = await self._cluster.start_engines(self._ranks, dunlin_run_args=self._dunlin_run_args)
        self._engines = self._cluster.engines[name]
        client = await self._cluster.connect_client()
        try:
            await self._await_engines(client)
            if self._signal is not None:
                return
            if sorted(client.ids) != list(range(self._ranks)):
                raise StartError(f"the ids of the engines are not their ranks: {client.ids}")
        finally:
            client.close()
        self._profile.publish(self._ranks, is_ready=True)
        argument = "" if self._profile.name == "dunlin" else f'"{self._profile.name}"'
        _say(f"{self._ranks} engines are ready. The id of an engine is its rank. In a notebook:\n\n"
             "    import dunlin.interactive\n"
             f"    ranks = dunlin.interactive.connect({argument})\n"
             "    %px import dunlin; dunlin.init()\n\n"
             f"Stop the cluster by Ctrl-C here, or by `python3 -m dunlin.interactive stop{self._profile.option()}`.")

    async def _await_engines(self, client):
        count, deadline = 0, time.monotonic() + REGISTRATION_SPAN
        while self._signal is None and len(client.ids) < self._ranks:
            if self._is_over() or self._new_messages():
                raise StartError("an engine has ended:\n" + self._tail())
            if len(client.ids) > count:
                count, deadline = len(client.ids), time.monotonic() + REGISTRATION_SPAN
            if time.monotonic() > deadline:
                missing = sorted(set(range(self._ranks)) - set(client.ids))
                raise StartError(f"the engines of ranks {missing} have not registered:\n{self._tail()}")
            await asyncio.sleep(POLL_INTERVAL)

    def _is_over(self):
        """Whether all engines have been told to end, and have ended. Raises StartError if they ended otherwise."""
        if self._engines.state == "after":
            if self._engines.stop_data["exit_code"] != 0:
                raise StartError("all engines have ended:\n" + self._tail())
            return True
        if self._cluster.controller.state == "after":
            # A client that shuts down everything ends the controller and the engines at the same time.
            if self._cluster.controller.stop_data["exit_code"] != 0:
                raise StartError("the controller has ended:\n" + self._cluster.controller.get_output())
            return True
        return False

    def _tell_deaths(self):
        messages = self._new_messages()
        for message in messages:
            _say(message)
        if messages and not self._deaths:
            _say("The other engines keep their variables. Their Dunlin calls raise PeerDeadError if they need that "
                 "rank. To go on with all ranks, stop the cluster and start it again.")
        self._deaths += len(messages)

    def _new_messages(self):
        """What dunlin-run has written since the last call about ranks that have failed, a line each."""
        if self._engines.state == "after":
            return []  # the file has been removed; _tail() has what was in it
        with open(self._engines.output_file, "rb") as file:
            file.seek(self._read)
            lines = file.read().split(b"\n")[:-1]  # without a line that is not complete
        self._read += sum(len(line) + 1 for line in lines)
        return [line.decode(errors="replace") for line in lines if line.startswith(b"dunlin-run: rank ")]

    def _tail(self):
        """The end of what dunlin-run and the engines have written."""
        return "\n".join(self._engines.get_output().splitlines()[-SHOWN_LINES:])

    async def _stop(self):
        """The engines first, so that they leave their job and the controller in order."""
        if self._engines is not None:
            await self._cluster.stop_engines()
        controller = self._cluster.controller
        await self._cluster.stop_controller()
        if controller is not None and controller.pid > 0:
            # A controller that was killed leaves its schedulers behind, in its process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(controller.pid, signal.SIGKILL)
