"""Least squares in a job that processes join and leave while it runs. It ends when MEMBERS workers have trained together.

    dunlin-run -n 2 --max-ranks 8 --job-file job --keep-going python3 elastic.py 3 &
    dunlin-run --join job -n 1 python3 elastic.py 3

SIGTERM makes a worker leave, and if one dies, the others go on.
"""

import signal
import sys

import dunlin
import numpy

FEATURES = 64
ROWS = 1000
STEPS = 1000  # with so many members
MEMBERS = int(sys.argv[1]) if len(sys.argv) > 1 else 1

dunlin.init()
signal.signal(signal.SIGTERM, lambda *_: dunlin.retire())
random = numpy.random.default_rng(dunlin.rank())
truth = numpy.linspace(-1, 1, FEATURES)
x = random.normal(size=(ROWS, FEATURES))
y = x @ truth

weights = numpy.zeros(FEATURES)
step = 0
end = 0  # the last step; 0: not known yet
reduce = None
while True:
    try:
        is_over = 0 < end <= step
        if reduce is None or dunlin.changes_before(None if is_over else step):
            reduce = None
            if not dunlin.reform():
                break  # this worker has left
            step = dunlin.share_model(weights, step)
            # A newcomer does not know of the end, and after a death, some members may be further than others.
            step, end = map(int, dunlin.all_reduce(numpy.array([step, end]), "max"))
            if end == 0 and len(dunlin.members()) >= MEMBERS:
                end = step + STEPS
            reduce = dunlin.StochasticReduce(FEATURES, dtype="float64")
            print(f"rank {dunlin.rank()}: members {dunlin.members()} from step {step} on", flush=True)
            continue
        if is_over:
            break
        weights -= 0.05 / ROWS * (x.T @ (x @ weights - y))
        reduce.average(weights)
        step += 1
    except dunlin.PeerDeadError as death:
        print(f"rank {dunlin.rank()} goes on: {death}", flush=True)
        reduce = None

print(f"after step {step}: largest error of a weight {numpy.abs(weights - truth).max():.1e}", flush=True)
dunlin.shutdown()
