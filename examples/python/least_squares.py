"""Data-parallel least squares: dunlin-run -n 4 python3 least_squares.py

Every rank has rows of its own; gradients are averaged while the next ones are computed.
"""

import dunlin
import numpy

FEATURES = 64
ROWS = 1000
STEPS = 200

dunlin.init()
random = numpy.random.default_rng(dunlin.rank())
truth = numpy.linspace(-1, 1, FEATURES)
x = random.normal(size=(ROWS, FEATURES))
y = x @ truth

weights = numpy.zeros(FEATURES)
# Two gradients in memory that the peers read in place: one is averaged while the other is computed.
gradients = [dunlin.zeros(FEATURES, weights.dtype) for _ in range(2)]
request = None
for step in range(STEPS):
    gradient = gradients[step % 2]
    numpy.matmul(x.T, x @ weights - y, out=gradient)
    gradient /= ROWS
    if request is not None:
        weights -= 0.2 * request.wait()
    request = dunlin.start_all_reduce(gradient, "avg", out=gradient)
weights -= 0.2 * request.wait()

error = numpy.abs(weights - truth).max()
worst = dunlin.all_reduce(numpy.array(error), "max")
if dunlin.rank() == 0:
    print(f"{dunlin.size()} ranks, largest error of a weight: {worst:.1e}")
assert worst < 1e-3, worst
dunlin.shutdown()
