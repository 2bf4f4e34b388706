"""A rank of survivors_test.py, on NumPy's arrays: survivors_rank.py CASE [RANK:STEP that it dies before]..."""

import os

import dunlin
import numpy as np
from dunlin import graph
from planned_deaths import CASE, RANKS, STEPS, await_news, die_before, living

RANK = os.environ["DUNLIN_RANK"]


def others():
    return [rank for rank in range(RANKS) if rank != dunlin.rank()]


def start(count):
    """Numbers whose averages by powers of 2 are exact in float64."""
    return np.array([np.arange(count) % 7 + 3.0 * rank**2 for rank in range(RANKS)])


def after_average(values, step):
    """The average of all ranks in float64: a rank's own value takes the place of a dead one's."""
    alive = living(step)
    result = values.copy()
    for rank in alive:
        result[rank] = sum(values[other if other in alive else rank] for other in range(RANKS)) / RANKS
    return result


def mean():
    dunlin.init(on_peer_loss="continue")
    # The data of the second travel in chunks.
    expected = {count: start(count) for count in (3, 100_000)}
    x = {count: values[dunlin.rank()].copy() for count, values in expected.items()}
    weights = dict.fromkeys(others(), 1 / RANKS)
    for step in range(STEPS):
        if os.environ.get("DUNLIN_TRANSPORTS") == "tcp":
            # A socket may lose what a process has sent just before it is killed: it lives until all have its data.
            dunlin.neighbor_gather(np.zeros(1), others(), others(), "the step begins")
        die_before(step)
        for count, values in expected.items():
            request = dunlin.start_neighbor_average(x[count], weights, others(), 1 / RANKS, f"of {count}", out=x[count])
            before = values[living(step)].sum(axis=0)
            expected[count] = after_average(values, step)
            np.testing.assert_array_equal(expected[count][living(step)].sum(axis=0), before)
            request.wait()
            np.testing.assert_array_equal(x[count], expected[count][dunlin.rank()], f"in step {step}")
    # A rank that ends after a death doesn't wait for others, which may still read what it has sent by sockets.
    assert dunlin.reform() == living(STEPS)


def push():
    dunlin.init(on_peer_loss="continue")
    values = start(3)
    made = graph.exponential(RANKS)
    x = values[dunlin.rank()].copy()
    sources, destinations = made.in_neighbors(dunlin.rank()), made.out_neighbors(dunlin.rank())
    for step in range(STEPS):
        die_before(step)
        await_news(step)
        x = dunlin.neighbor_average(x, sources, dict.fromkeys(destinations, 0.25), 0.5)
        alive = living(step)
        shares = np.zeros((RANKS, RANKS))
        for rank in alive:
            shares[rank, rank] = 1
            for to in made.out_neighbors(rank):
                if to in alive:
                    shares[to, rank], shares[rank, rank] = 0.25, shares[rank, rank] - 0.25
        before = values[alive].sum(axis=0)
        values = shares @ values
        np.testing.assert_array_equal(values[alive].sum(axis=0), before)
        np.testing.assert_array_equal(x, values[dunlin.rank()], f"in step {step}")


def moment():
    dunlin.init(on_peer_loss="continue")
    x = np.full(50_000, float(dunlin.rank()))
    for step in range(2000):
        x = dunlin.neighbor_average(x, dict.fromkeys(others(), 0.25), others(), 0.25)
        if step == 100:
            print(f"rank {dunlin.rank()} averages", flush=True)
        assert 0 <= x.min() and x.max() <= 3, x
    assert dunlin.reform() == [0, 1, 3]
    mine = x.copy()
    assert dunlin.world().size == 3
    np.testing.assert_allclose(dunlin.all_reduce(x, "avg"), mine, rtol=1e-12)


def gather():
    dunlin.init(on_peer_loss="continue")
    for step in range(STEPS):
        die_before(step)
        x = np.full((dunlin.rank() + 1, 2), step, np.int32)
        for parts in (dunlin.neighbor_gather(x, others(), others()),
                      dunlin.start_neighbor_gather(x, others(), others()).wait(10)):
            for source, part in zip(others(), parts):
                if source in living(step):
                    np.testing.assert_array_equal(part, np.full((source + 1, 2), step))
                else:
                    assert part is None, part


def reform():
    dunlin.init(on_peer_loss="continue")
    x = float(dunlin.rank()) * np.ones(3)
    for step in range(STEPS):
        die_before(step)
        dunlin.neighbor_average(x, dict.fromkeys(others(), 0.25), others(), 0.25)
        # The first one comes before any death. Ranks hear of deaths at different moments, and call it all the same.
        if step in (2, 6, 11):
            assert dunlin.reform() == living(step), dunlin.members()
            assert dunlin.members() == living(step)
            assert (dunlin.rank(), dunlin.size()) == (int(x[0]), RANKS)
            world = dunlin.world()
            assert (world.size, world.rank) == (len(living(step)), living(step).index(dunlin.rank()))
            np.testing.assert_array_equal(dunlin.all_reduce(x), sum(living(step)) * np.ones(3))
            np.testing.assert_array_equal(dunlin.all_gather(x)[:, 0], living(step))
            dunlin.barrier()
        # No rank dies before all have ended it, as they average with each other once more.
        if step in (7, 13):
            alive = living(6) if step == 7 else living(11)
            np.testing.assert_array_equal(dunlin.all_reduce(x), sum(alive) * np.ones(3))
    try:
        dunlin.Window(x, [], [])
    except dunlin.UnavailableError as error:
        assert "members may change" in str(error), error
    else:
        raise AssertionError("a window of some ranks was made")


def windows():
    """Puts and updates with the uniform average of all ranks."""
    dunlin.init(on_peer_loss="continue")
    values = start(5)
    window = dunlin.Window(values[dunlin.rank()], dict.fromkeys(others(), 0.25), others())
    for step in range(STEPS):
        dunlin.neighbor_gather(np.zeros(1), others(), others(), "the step begins")
        die_before(step)
        await_news(step)
        window.put()
        dunlin.neighbor_gather(np.zeros(1), others(), others(), "all have put")
        np.testing.assert_array_equal(window.update(0.25), after_average(values, step)[dunlin.rank()])
        values = after_average(values, step)
        window.get()
        window.flush()
    assert dunlin.reform() == living(STEPS)
    window.put()
    dunlin.barrier()
    np.testing.assert_array_equal(window.update(0.25), after_average(values, STEPS)[dunlin.rank()])
    window.free()


def shares():
    """Push-sum: nothing of the survivors' mass is lost."""
    dunlin.init(on_peer_loss="continue")
    values = start(5)
    window = dunlin.Window(values[dunlin.rank()], others(), others(), zero_init=True)
    for step in range(STEPS):
        dunlin.neighbor_gather(np.zeros(1), others(), others(), "the step begins")
        die_before(step)
        await_news(step)
        window.accumulate(dict.fromkeys(others(), 0.125), 0.625)
        dunlin.neighbor_gather(np.zeros(1), others(), others(), "all have put")
        window.update_then_collect()
    assert dunlin.reform() == living(STEPS)
    tensors, weights = dunlin.all_gather(window.tensor), dunlin.all_gather(np.array([window.p]))
    # Before the death, all ranks have mixed in every step; the dead one has taken its share with it.
    mass, p = values.copy(), np.ones(RANKS)
    for step in range(STEPS):
        alive = living(step)
        keep = 1 - 0.125 * (len(alive) - 1)
        mass = np.array([keep * mass[rank] + 0.125 * sum(mass[other] for other in alive if other != rank)
                         for rank in range(RANKS)])
        p = np.array([keep * p[rank] + 0.125 * sum(p[other] for other in alive if other != rank) for rank in range(RANKS)])
    np.testing.assert_allclose(tensors, mass[living(STEPS)], rtol=1e-13)
    np.testing.assert_allclose(weights.ravel(), p[living(STEPS)], rtol=1e-13)
    window.free()


def raises():
    dunlin.init()
    x = np.ones(3)
    try:
        for step in range(STEPS):
            die_before(step)
            dunlin.neighbor_average(x, dict.fromkeys(others(), 0.25), others(), 0.25)
    except dunlin.PeerDeadError as error:
        assert (error.peer, step) == (1, 5), (error, step)
    else:
        raise AssertionError("no error")
    for call in (lambda: dunlin.neighbor_average(x, [1]), lambda: dunlin.neighbor_gather(x, [1])):
        try:
            call()
        except dunlin.PeerDeadError as error:
            assert error.peer == 1, error
        else:
            raise AssertionError("no error")
    assert dunlin.members() == list(range(RANKS))


def epochs():
    """Before they agree on the survivors, one rank makes a call that the others don't make."""
    dunlin.init()
    x = float(dunlin.rank()) * np.ones(3)
    for step in range(3):
        die_before(step)
        dunlin.neighbor_average(x, dict.fromkeys(others(), 0.25), others(), 0.25)
        if dunlin.rank() in (0, 2):
            dunlin.partial_all_reduce(np.ones(3), [0, 2])
    die_before(3)
    if dunlin.rank() == 0:
        try:
            dunlin.neighbor_average(x, dict.fromkeys(others(), 0.25), others(), 0.25)
        except dunlin.PeerDeadError as error:
            assert error.peer == 1, error
        else:
            raise AssertionError("no error")
    assert dunlin.reform() == living(3)
    alive = [rank for rank in living(3) if rank != dunlin.rank()]
    for step in range(3):
        y = (10.0 * step + dunlin.rank()) * np.ones(3)
        average = dunlin.neighbor_average(y, dict.fromkeys(alive, 0.25), alive, 0.5)
        expected = 0.5 * y + 0.25 * sum((10.0 * step + rank) * np.ones(3) for rank in alive)
        np.testing.assert_array_equal(average, expected)
        if dunlin.rank() in (0, 2):
            np.testing.assert_array_equal(dunlin.partial_all_reduce(y, [0, 2], "sum"), 2 * (10.0 * step + 1) * np.ones(3))


def some():
    """A rank that has not asked for it is told, and so are the others."""
    try:
        dunlin.init(on_peer_loss="continue" if dunlin.graph.make("ring", 4) and os.environ["DUNLIN_RANK"] == "2" else None)
        dunlin.barrier("of those that have not asked for it")
    except dunlin.InvalidArgumentError as error:
        assert "on_peer_loss" in str(error), error
        assert dunlin.is_initialized() == (os.environ["DUNLIN_RANK"] != "2"), "an init() that fails leaves the job"
    else:
        raise AssertionError("the ranks have asked for different things")
    try:
        dunlin.init(on_peer_loss="ignore")
    except dunlin.InvalidArgumentError as error:
        assert "ignore" in str(error), error
    os.environ.pop("DUNLIN_RANK", None)


{"mean": mean, "sum": push, "moment": moment, "gather": gather, "reform": reform, "windows": windows, "shares": shares,
 "raise": raises, "epochs": epochs, "some": some}[CASE]()
print(f"rank {RANK} has survived", flush=True)
