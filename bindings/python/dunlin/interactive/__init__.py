"""Dunlin in notebooks: the ranks of a job are engines of an ipyparallel cluster, to which cells are sent.

In a terminal:

    python3 -m dunlin.interactive start -n 4

In a notebook:

    import dunlin.interactive
    ranks = dunlin.interactive.connect()
    %px import dunlin.torch as bf; bf.init()

The engines are the ranks of one job, under `dunlin-run`, on this host. The id of an engine is its rank. The notebook
itself is no rank. `python3 -m dunlin.interactive stop`, or Ctrl-C in the terminal, ends the cluster.

A notebook can also start a cluster of its own, which ends with the notebook's kernel:

    import ipyparallel
    cluster = ipyparallel.Cluster(n=4, engine_launcher_class="dunlin.interactive.EngineLauncher")
    client = cluster.start_and_connect_sync()
    client.activate()

Needs ipyparallel, version 7.1 or later.
"""

import time as _time

__all__ = ["EngineLauncher", "connect"]


def connect(profile="dunlin", timeout=60):
    """Connects to the cluster that `python3 -m dunlin.interactive start` has started on this host. Waits until all
    engines have registered.

    Returns an ipyparallel.DirectView of all engines. Its calls wait for their results, which are lists in the order of
    ranks. In IPython, %px and %%px run code on these engines. `connect().client` is the ipyparallel.Client: its
    client[2] is rank 2, and client.ids are the ranks that are there. A rank that has ended is in neither; the view goes
    on with the others, and their Dunlin calls raise PeerDeadError.

    profile: the name that was given to `start`.
    timeout: seconds to wait for the engines.

    Raises UnavailableError if no such cluster runs, and DeadlineExceededError after the timeout.
    """
    from dunlin.interactive._requirements import ipyparallel
    from dunlin.interactive._profile import Profile
    from dunlin.errors import DeadlineExceededError

    found = Profile(profile)
    deadline = _time.monotonic() + timeout
    while not found.running_cluster().is_ready:
        if _time.monotonic() > deadline:
            raise DeadlineExceededError(f"the engines of the profile {profile!r} have not registered within "
                                        f"{timeout} s", "deadline_exceeded")
        _time.sleep(0.1)
    client = ipyparallel.Client(profile_dir=found.folder, timeout=timeout)
    view = client.direct_view("all")
    view.block = True
    from IPython import get_ipython
    if get_ipython() is not None:
        view.activate()
    return view


def __getattr__(name):
    # Imported when it is used, so that the command can say in one line that ipyparallel is missing.
    if name == "EngineLauncher":
        from dunlin.interactive._launcher import EngineLauncher
        return EngineLauncher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
