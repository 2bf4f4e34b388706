"""Least squares without a server: dunlin-run -n 8 python3 decentralized.py [ALGORITHM]

Each rank has measurements of its own and talks to its neighbors only; together they find what all measurements say.
    gradient-descent    to a neighborhood of the optimum, as large as the step (Nedic, Ozdaglar 2009)
    exact-diffusion     to the optimum (Yuan, Ying, Zhao, Sayed 2019)
    gradient-tracking   to the optimum (Di Lorenzo, Scutari 2016; Qu, Li 2018)
    push-diging         to the optimum, over directed graphs that change in each step (Nedic, Olshevsky, Shi 2017)
    push-sum            the average of vectors, where no rank waits for another (Kempe, Dobra, Gehrke 2003)
"""

import sys
import time

import dunlin
import numpy

FEATURES = 10
ROWS = 50
STEP = 0.02


class Problem:
    """Rank r's function is |A_r x - b_r|^2 / (2 ROWS)."""

    def __init__(self):
        # Every rank makes the data of all ranks, to know the optimum. The algorithms use the rank's own data only.
        data = [self._of(rank) for rank in range(dunlin.size())]
        self.a, self.b = data[dunlin.rank()]
        self.optimum = numpy.linalg.solve(sum(a.T @ a for a, _ in data), sum(a.T @ b for a, b in data))

    @staticmethod
    def _of(rank):
        random = numpy.random.default_rng(rank)
        a = random.normal(size=(ROWS, FEATURES))
        return a, a @ numpy.linspace(-1, 1, FEATURES) + random.normal(size=ROWS)

    def gradient(self, x):
        return self.a.T @ (self.a @ x - self.b) / ROWS

    def error(self, x):
        """The largest of all ranks'."""
        mine = numpy.linalg.norm(x - self.optimum) / numpy.linalg.norm(self.optimum)
        return float(dunlin.all_reduce(numpy.array(mine), "max"))


def neighbor_average(x, name):
    """Averages with the neighbors in a ring. Each rank gives as much weight as it gets, so the mean does not change."""
    graph = dunlin.graph.bidirectional_ring(dunlin.size())
    own, others = graph.weights(dunlin.rank(), "metropolis")
    return dunlin.neighbor_average(x, others, graph.out_neighbors(dunlin.rank()), own, name)


def gradient_descent(problem, steps):
    x = numpy.zeros(FEATURES)
    for _ in range(steps):
        x = neighbor_average(x - STEP * problem.gradient(x), "x")
    return x


def exact_diffusion(problem, steps):
    x = numpy.zeros(FEATURES)
    before = x
    for _ in range(steps):
        adapted = x - STEP * problem.gradient(x)
        corrected = adapted + x - before
        x, before = (corrected + neighbor_average(corrected, "x")) / 2, adapted
    return x


def gradient_tracking(problem, steps):
    x = numpy.zeros(FEATURES)
    gradient = problem.gradient(x)
    tracked = gradient
    for _ in range(steps):
        x = neighbor_average(x - STEP * tracked, "x")
        latest = problem.gradient(x)
        tracked = neighbor_average(tracked, "gradient") + latest - gradient
        gradient = latest
    return x


def push_diging(problem, steps):
    peers = dunlin.graph.one_peer_exponential(dunlin.size(), dunlin.rank())
    u, v = numpy.zeros(FEATURES), numpy.ones(1)
    x = u / v
    gradient = problem.gradient(x)
    tracked = gradient
    for _ in range(steps):
        send_to, receive_from = next(peers)
        share = 1 / (len(send_to) + 1)  # what a rank gives away and keeps is all that it has

        def push(value, name):
            return dunlin.neighbor_average(value, receive_from, {rank: share for rank in send_to}, share, name)

        u, v = push(u - STEP * tracked, "u"), push(v, "v")
        x = u / v
        latest = problem.gradient(x)
        tracked = push(tracked, "gradient") + latest - gradient
        gradient = latest
    return x


def push_sum():
    random = numpy.random.default_rng(dunlin.rank())
    mine = random.normal(size=FEATURES)
    mean = dunlin.all_reduce(mine, "avg")
    graph = dunlin.graph.exponential(dunlin.size())
    receivers = graph.out_neighbors(dunlin.rank())
    share = 1 / (len(receivers) + 1)
    window = dunlin.Window(mine, graph.in_neighbors(dunlin.rank()), receivers, zero_init=True)
    for _ in range(200):
        window.accumulate({rank: share for rank in receivers}, share)
        time.sleep(random.random() * 0.002)
        window.update_then_collect()
    # Messages that are still in flight arrive, and none of them is lost.
    window.flush()
    dunlin.barrier()
    window.update_then_collect()
    error = numpy.abs(window.tensor / window.p - mean).max()
    mass = dunlin.all_reduce(numpy.append(window.tensor, window.p))
    lost = numpy.abs(mass - numpy.append(mean, 1) * dunlin.size()).max()
    worst = float(dunlin.all_reduce(numpy.array(error), "max"))
    window.free()
    return worst, lost


# Steps, and the error that is reached.
ALGORITHMS = {"gradient-descent": (gradient_descent, 1000, 0.2), "exact-diffusion": (exact_diffusion, 3000, 1e-10),
              "gradient-tracking": (gradient_tracking, 3000, 1e-10), "push-diging": (push_diging, 3000, 1e-10)}


def main():
    chosen = sys.argv[1:] or [*ALGORITHMS, "push-sum"]
    dunlin.init()
    for name in chosen:
        if name == "push-sum":
            error, lost = push_sum()
            bound = 1e-6
            text = f"{error:.1e}; {lost:.1e} of the sum got lost"
        elif name in ALGORITHMS:
            run, steps, bound = ALGORITHMS[name]
            problem = Problem()
            error = problem.error(run(problem, steps))
            text = f"{error:.1e} after {steps} steps"
        else:
            sys.exit(f"{name}: one of {', '.join(ALGORITHMS)}, push-sum")
        if dunlin.rank() == 0:
            print(f"{name:18} largest error of {dunlin.size()} ranks: {text}", flush=True)
        assert error < bound, error
    dunlin.shutdown()


main()
