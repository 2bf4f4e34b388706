"""A rank of elastic_python_test.py: trains until it is told to leave."""

import signal
import sys
import time

import dunlin
import numpy

METHOD = sys.argv[1]
FEATURES = 40
IN_STEP = METHOD == "notify-ack"


def make():
    if METHOD == "groups":
        return dunlin.GroupAverage(FEATURES, group_size=2)
    return dunlin.StochasticReduce(FEATURES, graph="ring", sync=METHOD)


def check_refusals():
    """What needs all ranks of a job says so."""
    weights = numpy.zeros(3, numpy.float32)
    for call in (lambda: dunlin.Window(weights, sources=[], destinations=[]), lambda: dunlin.Mutex("m"),
                 lambda: dunlin.PairAverage(3), lambda: dunlin.GroupAverage(3, source="static"),
                 lambda: dunlin.check_neighbors([], [])):
        try:
            call()
        except dunlin.UnavailableError as refusal:
            assert "members may change" in str(refusal), refusal
        else:
            raise AssertionError("a call that needs all ranks was made")


dunlin.init()
signal.signal(signal.SIGTERM, lambda *_: dunlin.retire())
was_new = dunlin.is_newcomer()
assert was_new == (dunlin.rank() >= 2)
assert dunlin.size() == 6
check_refusals()
truth = numpy.linspace(-1, 1, FEATURES, dtype=numpy.float32)
random = numpy.random.default_rng(dunlin.rank())
x = random.normal(size=(200, FEATURES)).astype(numpy.float32)
y = x @ truth
weights = numpy.zeros(FEATURES, numpy.float32)
step = 0
told = 0
average = None
while True:
    try:
        if average is None or dunlin.changes_before(step, IN_STEP):
            former, average = average, None
            if not dunlin.reform():
                break
            assert dunlin.world().size == len(dunlin.members())
            step = dunlin.share_model(weights, step)
            if IN_STEP:
                step = int(dunlin.all_reduce(numpy.array(step), "max"))
            assert not dunlin.is_newcomer()
            error = numpy.abs(weights - truth).max()
            if was_new:
                print(f"rank {dunlin.rank()} begins with error {error:.4f}", flush=True)
                was_new = False
            average = make()
            if former is not None:
                try:
                    former.average(weights)
                except dunlin.ClosedError:
                    pass
                else:
                    raise AssertionError("an average of the former members is still there")
            print(f"rank {dunlin.rank()}: members {dunlin.members()}", flush=True)
            continue
        weights -= 0.002 / 200 * (x.T @ (x @ weights - y))
        time.sleep(0.001)  # a step that takes a while, so that newcomers get a core to start on
        average.average(weights)
        step += 1
        if time.monotonic() > told + 0.1:
            told = time.monotonic()
            print(f"rank {dunlin.rank()}: step {step} error {numpy.abs(weights - truth).max():.4f}", flush=True)
    except dunlin.PeerDeadError as death:
        print(f"rank {dunlin.rank()} goes on: {death}", flush=True)
        average = None
assert not dunlin.is_initialized()
print(f"left after step {step} with error {numpy.abs(weights - truth).max():.4f}", flush=True)
