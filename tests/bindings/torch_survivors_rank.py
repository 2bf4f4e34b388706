"""A rank of survivors_test.py, with PyTorch: torch_survivors_rank.py CASE [RANK:STEP that it dies before]..."""

import dunlin
import dunlin.torch as bf
import networkx
import numpy as np
import torch
from planned_deaths import CASE, RANKS, STEPS, await_news, die_before, living

torch.set_num_threads(1)
RATE = 0.25


def equal_weights():
    """A symmetric topology with weights by which float64 is exact."""
    made = networkx.from_numpy_array(np.full((RANKS, RANKS), 1 / RANKS), create_using=networkx.DiGraph)
    return made


def start():
    return np.array([[rank**2, 3.0 * rank, 1.0] for rank in range(RANKS)])


def mixing(made, step):
    """The matrix (of targets and sources) of a weighted graph without the dead ranks, whose weights the targets have."""
    alive = living(step)
    matrix = np.zeros((RANKS, RANKS))
    for source, target, data in made.edges(data=True):
        if target in alive:
            matrix[target, source if source in alive else target] += data["weight"]
    return matrix


def topologies():
    bf.init(on_peer_loss="continue")
    uniform = bf.ExponentialGraph(RANKS)  # not doubly stochastic without one of its ranks
    for source, target in uniform.edges:
        uniform[source][target]["weight"] = 1 / 3
    graphs = {"weighted": equal_weights(), "uniform": uniform}
    values = {name: start() for name in graphs}
    x = {name: torch.tensor(values[name][bf.rank()]) for name in graphs}
    gossip = torch.full((2,), float(bf.rank()), dtype=torch.float64)
    # These are collective.
    bf.set_topology(graphs["weighted"], is_weighted=True)
    for step in range(STEPS):
        die_before(step)
        alive = living(step)
        for name, made in graphs.items():
            if name == "weighted":
                x[name] = bf.neighbor_allreduce(x[name], name=name)
            else:
                own = made[bf.rank()][bf.rank()]["weight"]
                sources = {source: data["weight"] for source, _, data in made.in_edges(bf.rank(), data=True)
                           if source != bf.rank()}
                targets = [target for target in made.successors(bf.rank()) if target != bf.rank()]
                x[name] = bf.neighbor_allreduce(x[name], self_weight=own, src_weights=sources, dst_weights=targets,
                                                enable_topo_check=False, name=name)
            before = values[name][alive].sum(axis=0)
            values[name] = mixing(made, step) @ values[name]
            if name == "weighted":
                np.testing.assert_array_equal(values[name][alive].sum(axis=0), before)
                np.testing.assert_array_equal(x[name].numpy(), values[name][bf.rank()])
            np.testing.assert_allclose(x[name].numpy(), values[name][bf.rank()], rtol=1e-13)
        partner = bf.rank() ^ 1
        found = bf.pair_gossip(gossip, partner)
        expected = (bf.rank() + partner) / 2 if partner in alive else float(bf.rank())
        assert (found == expected).all(), (found, expected)
        rows = bf.neighbor_allgather(torch.full((1, 2), bf.rank()))
        assert rows[:, 0].tolist() == [rank for rank in alive if rank != bf.rank()], rows
        assert bf.allgather(torch.tensor([bf.rank()])).tolist() == alive
    await_news(STEPS)


def reform():
    bf.init(on_peer_loss="continue")
    values = start()
    x = torch.tensor(values[bf.rank()])
    for step in range(STEPS):
        die_before(step)
        if step == 8:
            before = x.clone()
            assert bf.reform() == living(step)
            assert (bf.rank(), bf.size(), dunlin.members()) == (bf.rank(), RANKS, living(step))
            assert sorted(bf.load_topology().nodes) == living(step)
            assert bf.in_neighbor_ranks() == [rank for rank in living(step) if rank != bf.rank()]
            mean = bf.allreduce(before)
        x = bf.neighbor_allreduce(x)
    # Three ranks that average with one another have the mean of what they had, which is the same for all.
    assert torch.allclose(x, mean, rtol=1e-12), (x, mean)
    alive = living(STEPS)
    assert bf.broadcast(torch.tensor([bf.rank()]), alive[-1]).tolist() == alive[-1:]
    state = {"w": torch.full((3,), float(bf.rank()))}
    bf.broadcast_parameters(state, alive[1])
    assert (state["w"] == alive[1]).all()
    # The check makes all survivors take part, and calls name dead ranks as before.
    found = bf.neighbor_allreduce(torch.full((2,), float(bf.rank()), dtype=torch.float64), self_weight=0.5,
                                  src_weights={(bf.rank() - 1) % RANKS: 0.5}, dst_weights=[(bf.rank() + 1) % RANKS])
    source = (bf.rank() - 1) % RANKS
    assert (found == 0.5 * bf.rank() + 0.5 * (source if source in alive else bf.rank())).all(), found
    # A function makes a graph of as many nodes as there are survivors.
    bf.init(bf.RingGraph)
    assert sorted(bf.load_topology().nodes) == alive
    made = networkx.DiGraph((source, target) for source in alive for target in alive)
    assert bf.set_topology(made)
    try:
        bf.set_topology(bf.RingGraph(RANKS))
    except ValueError as error:
        assert str(alive) in str(error), error
    else:
        raise AssertionError("a topology of dead ranks was set")
    bf.barrier()


class Model(torch.nn.Module):
    """Parameters whose gradient is their distance from a rank's own goal."""

    def __init__(self, value):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(value))

    def forward(self, goal):
        return 0.5 * ((self.w - goal) ** 2).sum()


def optimizers():
    bf.init(on_peer_loss="continue")
    made = equal_weights()
    bf.set_topology(made, is_weighted=True)
    for number, (wrap, has_momentum) in enumerate((
            (bf.DistributedAdaptThenCombineOptimizer, False), (bf.DistributedAdaptWithCombineOptimizer, False),
            (lambda *arguments: bf.DistributedAdaptThenCombineOptimizer(*arguments, overlap=True), False),
            (bf.DistributedNeighborAllreduceOptimizer, False), (bf.DistributedDmSGDOptimizer, True),
            (bf.DistributedQGDmSGDOptimizer, True))):
        values, goals = start(), np.array([[10.0 * rank] * 3 for rank in range(RANKS)])
        momenta = np.zeros_like(values)
        model = Model(values[bf.rank()])
        sgd = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5 if has_momentum else 0.0)
        optimizer = wrap(sgd, model)
        for step in range(STEPS):
            # The death is in the first optimizer's steps.
            now = step if number == 0 else STEPS
            if number == 0:
                die_before(step)
            optimizer.zero_grad()
            model(torch.tensor(goals[bf.rank()])).backward()
            optimizer.step()
            mix, gradients = mixing(made, now), values - goals
            if wrap is bf.DistributedDmSGDOptimizer:
                momenta = 0.5 * momenta + gradients
                momenta, values = mix @ momenta, mix @ (values - RATE * momenta)
            elif wrap is bf.DistributedQGDmSGDOptimizer:
                averaged = mix @ (values - RATE * (0.5 * momenta + gradients))
                momenta, values = 0.5 * momenta + 0.5 * (values - averaged) / RATE, averaged
            elif wrap in (bf.DistributedAdaptWithCombineOptimizer, bf.DistributedNeighborAllreduceOptimizer):
                values = mix @ values - RATE * gradients
            else:
                values = mix @ (values - RATE * gradients)
            np.testing.assert_allclose(model.w.detach().numpy(), values[bf.rank()], rtol=1e-11, atol=1e-11,
                                       err_msg=f"optimizer {number}, step {step}")
        optimizer.leave()


def win_put():
    bf.init(on_peer_loss="continue")
    bf.set_topology(equal_weights(), is_weighted=True)
    model = Model(start()[bf.rank()])
    optimizer = bf.DistributedWinPutOptimizer(torch.optim.SGD(model.parameters(), lr=0.02), model)
    others = [rank for rank in range(RANKS) if rank != bf.rank()]
    for step in range(400):
        die_before(step)
        dunlin.neighbor_gather(np.zeros(1), others, others, "step")  # no rank is far ahead of others
        optimizer.zero_grad()
        model(torch.full((3,), 10.0 * bf.rank(), dtype=torch.float64)).backward()
        optimizer.step()
        if step == 8:
            await_news(step)
    alive = living(STEPS)
    assert bf.reform() == alive
    # Windows of some ranks can't be made, but those that there are go on.
    with bf.win_mutex(optimizer._names[0]):
        pass
    optimizer.step()
    optimizer.leave()
    # The survivors have found a common model, close to the mean of their goals.
    models = bf.allgather(model.w.detach().reshape(1, -1))
    goal = 10.0 * sum(alive) / len(alive)
    assert (models - goal).abs().max() < 3, (models, goal)


def refused():
    bf.init(on_peer_loss="continue")
    model = Model(start()[bf.rank()])

    def sgd():
        return torch.optim.SGD(model.parameters(), lr=0.1)

    kinds = bf.CommunicationType
    for call in (lambda: bf.hierarchical_neighbor_allreduce(torch.ones(1)),
                 lambda: bf.DistributedGradientAllreduceOptimizer(sgd(), model),
                 lambda: bf.DistributedAllreduceOptimizer(sgd(), model),
                 lambda: bf.DistributedHierarchicalNeighborAllreduceOptimizer(sgd(), model),
                 lambda: bf.DistributedAdaptThenCombineOptimizer(sgd(), model, kinds.allreduce),
                 lambda: bf.DistributedOptimizer(sgd(), model, "all-reduce"),
                 lambda: bf.DistributedOptimizer(sgd(), model, "local-sgd"),
                 lambda: bf.DistributedOptimizer(sgd(), model, "stochastic"),
                 lambda: bf.DistributedOptimizer(sgd(), model, "partial", groups="static"),
                 lambda: bf.DistributedOptimizer(sgd(), model, "parameter-server")):
        try:
            call()
        except dunlin.UnavailableError as error:
            assert "on_peer_loss" in str(error), error
        else:
            raise AssertionError("it was not refused")
    optimizer = bf.DistributedAdaptThenCombineOptimizer(sgd(), model)
    optimizer.communication_type = kinds.allreduce
    model(torch.zeros(3)).backward()
    try:
        optimizer.step()
    except dunlin.UnavailableError:
        pass
    else:
        raise AssertionError("it was not refused")
    optimizer.leave()
    try:
        bf.neighbor_allreduce(torch.ones(1), self_weight=0.5, src_weights={(bf.rank() - 1) % RANKS: 0.5},
                              dst_weights={(bf.rank() + 1) % RANKS: 0.5})
    except dunlin.InvalidArgumentError as error:
        assert "one side" in str(error), error
    else:
        raise AssertionError("weights of both sides were taken")
    bf.barrier()


def gossip():
    """The hook averages with weights of 1/4. In each step, the gradient is 1 at the rank's own place."""
    import dunlin.c10d
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("dunlin")
    rank = dist.get_rank()
    model = torch.nn.Linear(RANKS, 1, bias=False).double()
    ddp = DistributedDataParallel(model, broadcast_buffers=False)
    ddp.register_comm_hook(dunlin.c10d.GossipState(dunlin.graph.complete(RANKS), on_peer_loss="continue"),
                           dunlin.c10d.gossip_hook)
    for step in range(STEPS):
        die_before(step)
        model.weight.grad = None
        ddp(torch.eye(RANKS, dtype=torch.float64)[rank:rank + 1] * (step + 1)).sum().backward()
        expected = torch.zeros(RANKS, dtype=torch.float64)
        for other in range(RANKS):
            expected[other if other in living(step) else rank] += (step + 1) / RANKS
        assert torch.equal(model.weight.grad.ravel(), expected), (step, model.weight.grad, expected)
    dunlin.reform()


{"topologies": topologies, "reform": reform, "optimizers": optimizers, "win_put": win_put, "refused": refused,
 "gossip": gossip}[CASE]()
print(f"rank {dunlin.rank()} has survived", flush=True)
