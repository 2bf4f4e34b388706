"""DmSGD and QG-DmSGD of dunlin.torch: dunlin-run -n N python3 torch_momentum_test.py

A rank trains with the others, and then computes the training of all ranks in NumPy, with gradients of its own, from the
formulas of the papers.
"""

import copy
import unittest

import numpy
import torch

import dunlin.torch as bf
from dunlin.torch import CommunicationType

torch.set_num_threads(1)
STEPS = 7
GROUPS = ({"lr": 0.1, "momentum": 0.8, "weight_decay": 0.01}, {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.0})
KINDS = {"DmSGD": bf.DistributedDmSGDOptimizer, "QG-DmSGD": bf.DistributedQGDmSGDOptimizer}


def setUpModule():
    bf.init()


def make_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(5, 3).double()


def make_optimizer(model, **options):
    groups = [{"params": [p], **group} for p, group in zip((model.weight, model.bias), GROUPS)]
    return torch.optim.SGD(groups, lr=1.0, momentum=0.5, **options)


def data_of(rank, step):
    """Inputs and targets, which differ between ranks in more than noise."""
    random = numpy.random.default_rng([rank, step])
    x = random.normal(rank, 1.0, (8, 5))
    return x, x[:, :3] * (1 + rank) + random.normal(size=(8, 3))


def loss_of(model, rank, step):
    x, wanted = map(torch.from_numpy, data_of(rank, step))
    return ((model(x) - wanted.to(model.weight.dtype)) ** 2).mean()


def train(wrap, steps=STEPS, seed=None, data=None, prepare=lambda optimizer, step: None, first=0, **options):
    """This rank's model, and its optimizer. seed, data: the rank itself, unless given."""
    model = make_model(bf.rank() if seed is None else seed)
    optimizer = wrap(make_optimizer(model, **options), model)
    go_on(model, optimizer, range(first, first + steps), data, prepare)
    return model, optimizer


def go_on(model, optimizer, steps, data=None, prepare=lambda optimizer, step: None):
    for step in steps:
        prepare(optimizer, step)
        optimizer.zero_grad()
        loss_of(model, bf.rank() if data is None else data, step).backward()
        optimizer.step()


def simulate(kind, weights, nesterov=False, mu=None, rates=lambda step: 1.0, clip=None):
    """The weights, biases and their momenta of all ranks: [[w, b, m_w, m_b] of each rank].

    weights(step): the matrix W, or None in a step without communication.
    """
    count = bf.size()
    models = [make_model(rank) for rank in range(count)]
    x = [[p.detach().numpy().copy() for p in (model.weight, model.bias)] for model in models]
    m = [[numpy.zeros_like(p) for p in own] for own in x]
    for step in range(STEPS):
        half, momenta = [], []
        for rank in range(count):
            inputs, wanted = data_of(rank, step)
            rest = inputs @ x[rank][0].T + x[rank][1] - wanted
            gradients = [2 * rest.T @ inputs / rest.size, 2 * rest.sum(0) / rest.size]
            if clip is not None:
                length = numpy.sqrt(sum((g ** 2).sum() for g in gradients))
                gradients = [g * min(1.0, clip / (length + 1e-6)) for g in gradients]
            half.append([])
            momenta.append([])
            for value, momentum, gradient, group in zip(x[rank], m[rank], gradients, GROUPS):
                gradient = gradient + group["weight_decay"] * value
                local = group["momentum"] * momentum + gradient
                direction = gradient + group["momentum"] * local if nesterov else local
                half[-1].append(value - group["lr"] * rates(step) * direction)
                momenta[-1].append(local)
        w = numpy.eye(count) if weights(step) is None else weights(step)
        new = [[sum(w[i, j] * half[j][k] for j in range(count)) for k in range(2)] for i in range(count)]
        if kind == "DmSGD":
            m = [[sum(w[i, j] * momenta[j][k] for j in range(count)) for k in range(2)] for i in range(count)]
        else:
            for rank in range(count):
                for k, group in enumerate(GROUPS):
                    share = group["momentum"] if mu is None else mu
                    moved = (x[rank][k] - new[rank][k]) / (group["lr"] * rates(step))
                    m[rank][k] = share * m[rank][k] + (1 - share) * moved
        x = new
    return [own + momentum for own, momentum in zip(x, m)]


def matrix_of(topology):
    """W of a topology: row i has the weights of i's own tensor and of its in-neighbors'."""
    matrix = numpy.zeros((bf.size(), bf.size()))
    for rank in range(bf.size()):
        matrix[rank, rank], others = bf.GetRecvWeights(topology, rank)
        for other, weight in others.items():
            matrix[rank, other] = weight
    return matrix


def state_of(model, optimizer):
    return [p.detach() for p in model.parameters()] + [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]


class Momentum(unittest.TestCase):
    def setUp(self):
        self.ring = bf.RingGraph(bf.size())
        bf.set_topology(self.ring, is_weighted=True)

    def assert_close(self, found, expected, scale=1.0):
        for one, other in zip(found, expected, strict=True):
            one, other = (numpy.asarray(each.detach() if torch.is_tensor(each) else each) for each in (one, other))
            numpy.testing.assert_allclose(one, other, rtol=1e-10 * scale, atol=1e-11 * scale)

    def assert_equal(self, found, expected):
        for one, other in zip(found, expected, strict=True):
            self.assertTrue(torch.equal(one, other), f"{(one - other).abs().max()}")

    def test_a_ring(self):
        ring = matrix_of(self.ring)
        for kind, wrap in KINDS.items():
            for nesterov in (False, True):
                for every in (1, 3):
                    model, optimizer = train(lambda plain, model: wrap(plain, model, num_steps_per_communication=every),
                                             nesterov=nesterov)
                    expected = simulate(kind, lambda step: ring if (step + 1) % every == 0 else None, nesterov)
                    self.assert_close(state_of(model, optimizer), expected[bf.rank()])

    def test_mu_is_an_option_of_its_own(self):
        ring = matrix_of(self.ring)
        model, optimizer = train(lambda plain, model: bf.DistributedQGDmSGDOptimizer(plain, model, mu=0.3))
        self.assert_close(state_of(model, optimizer), simulate("QG-DmSGD", lambda step: ring, mu=0.3)[bf.rank()])

    def test_a_graph_that_changes(self):
        """The one-peer exponential graph: other neighbors in each step."""
        if bf.size() < 2:
            return  # it needs neighbors
        graph = bf.ExponentialGraph(bf.size())
        generators = [bf.GetDynamicOnePeerSendRecvRanks(graph, rank) for rank in range(bf.size())]
        turns = [[next(generator) for generator in generators] for _ in range(STEPS)]

        def weights(step):
            matrix = numpy.zeros((bf.size(), bf.size()))
            for rank, (_, receive) in enumerate(turns[step]):
                for other in [rank, *receive]:
                    matrix[rank, other] = 1 / (len(receive) + 1)
            return matrix

        def prepare(optimizer, step):
            send, receive = turns[step][bf.rank()]
            optimizer.dst_weights = send
            optimizer.src_weights = {rank: 1 / (len(receive) + 1) for rank in receive}
            optimizer.self_weight = 1 / (len(receive) + 1)

        for kind, wrap in KINDS.items():
            model, optimizer = train(wrap, prepare=prepare)
            self.assert_close(state_of(model, optimizer), simulate(kind, weights)[bf.rank()])

    def test_machines(self):
        bf.set_machine_topology(bf.ExponentialGraph(bf.machine_size()))
        per = bf.local_size()
        matrix = numpy.kron(matrix_of_machines(), numpy.full((per, per), 1 / per))
        for kind, wrap in KINDS.items():
            model, optimizer = train(
                lambda plain, model: wrap(plain, model, CommunicationType.hierarchical_neighbor_allreduce))
            self.assert_close(state_of(model, optimizer), simulate(kind, lambda step: matrix)[bf.rank()])

    def test_dmsgd_alone_is_sgd(self):
        for options in ({}, {"nesterov": True}, {"maximize": True}):
            plain, its_optimizer = train(lambda optimizer, model: optimizer, **options)
            kinds = [CommunicationType.empty] + [CommunicationType.neighbor_allreduce] * (bf.size() == 1)
            for kind in kinds:
                model, optimizer = train(lambda plain, model: bf.DistributedDmSGDOptimizer(plain, model, kind), **options)
                self.assert_equal(state_of(model, optimizer), state_of(plain, its_optimizer))

    def test_qg_dmsgd_alone_is_the_documented_recursion(self):
        model, optimizer = train(lambda plain, model: bf.DistributedQGDmSGDOptimizer(plain, model, CommunicationType.empty))
        w, m, group = make_model(bf.rank()).weight.detach().numpy().copy(), 0.0, GROUPS[0]
        b, m_b, other = make_model(bf.rank()).bias.detach().numpy().copy(), 0.0, GROUPS[1]
        for step in range(STEPS):
            inputs, wanted = data_of(bf.rank(), step)
            rest = inputs @ w.T + b - wanted
            g = 2 * rest.T @ inputs / rest.size + group["weight_decay"] * w
            g_b = 2 * rest.sum(0) / rest.size
            w, b = w - group["lr"] * (group["momentum"] * m + g), b - other["lr"] * (other["momentum"] * m_b + g_b)
            # m <- (mu + (1 - mu) beta) m + (1 - mu) g, with mu = beta
            m = (2 * group["momentum"] - group["momentum"] ** 2) * m + (1 - group["momentum"]) * g
            m_b = (2 * other["momentum"] - other["momentum"] ** 2) * m_b + (1 - other["momentum"]) * g_b
        self.assert_close(state_of(model, optimizer), [w, b, m, m_b], 100)

    def test_equal_ranks_are_one(self):
        """On a complete graph with the same data everywhere: SGD, and for QG-DmSGD with mu = 0."""
        bf.set_topology(bf.FullyConnectedGraph(bf.size()))
        plain, its_optimizer = train(lambda optimizer, model: optimizer, seed=5, data=0)
        for wrap in (bf.DistributedDmSGDOptimizer, lambda plain, model: bf.DistributedQGDmSGDOptimizer(plain, model, mu=0)):
            model, optimizer = train(wrap, seed=5, data=0)
            self.assert_close(state_of(model, optimizer), state_of(plain, its_optimizer), 100)
        one, its_optimizer = train(lambda plain, model: bf.DistributedQGDmSGDOptimizer(plain, model, CommunicationType.empty),
                                   seed=5, data=0)
        model, optimizer = train(bf.DistributedQGDmSGDOptimizer, seed=5, data=0)
        self.assert_close(state_of(model, optimizer), state_of(one, its_optimizer), 100)

    def test_a_learning_rate_that_changes(self):
        """QG-DmSGD divides by the rate of the step; a step with a rate of 0 only averages."""
        ring = matrix_of(self.ring)
        model = make_model(bf.rank())
        plain = make_optimizer(model)
        optimizer = bf.DistributedQGDmSGDOptimizer(plain, model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, bf.rank(), step).backward()
            optimizer.step()
            scheduler.step()
        expected = simulate("QG-DmSGD", lambda step: ring, rates=lambda step: 1 / (1 + step))
        self.assert_close(state_of(model, optimizer), expected[bf.rank()])
        before = [m.clone() for m in state_of(model, optimizer)]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
        after = state_of(model, optimizer)
        self.assert_equal(after[2:], before[2:])
        everywhere = bf.allgather(before[0].reshape(1, -1)).numpy()
        self.assert_close([after[0].reshape(-1)], [ring[bf.rank()] @ everywhere])

    def test_clipped_gradients(self):
        ring = matrix_of(self.ring)
        for kind, wrap in KINDS.items():
            model = make_model(bf.rank())
            optimizer = wrap(make_optimizer(model), model)
            for step in range(STEPS):
                optimizer.zero_grad()
                loss_of(model, bf.rank(), step).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
            self.assert_close(state_of(model, optimizer), simulate(kind, lambda step: ring, clip=0.5)[bf.rank()])

    def test_gradients_of_several_passes_and_a_closure(self):
        """Twice half of the loss is the loss, and so is a closure that computes it."""
        for wrap in KINDS.values():
            whole, its_optimizer = train(wrap)
            model, closed = make_model(bf.rank()), make_model(bf.rank())
            optimizer = wrap(make_optimizer(model), model, num_steps_per_communication=2)
            with_closure = wrap(make_optimizer(closed), closed)
            for step in range(STEPS):
                optimizer.zero_grad()
                for _ in range(2):
                    (loss_of(model, bf.rank(), step) / 2).backward()
                optimizer.step()

                def closure():
                    with_closure.zero_grad()
                    loss = loss_of(closed, bf.rank(), step)
                    loss.backward()
                    return loss

                self.assertGreater(with_closure.step(closure).item(), 0)
            self.assert_close(state_of(model, optimizer), state_of(whole, its_optimizer))
            self.assert_equal(state_of(closed, with_closure), state_of(whole, its_optimizer))

    def test_tied_weights_and_parameters_without_gradients(self):
        for kind, wrap in KINDS.items():
            tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).double()
            for p in tied.parameters():
                torch.nn.init.constant_(p, bf.rank() + 1.0)
            tied[1].weight = tied[0].weight
            parameters = list(tied.parameters())
            optimizer = wrap(torch.optim.SGD(parameters, lr=0.5, momentum=0.5), tied)
            (tied[0].weight.sum() + tied[1].weight.sum()).backward()  # the others have no gradient
            optimizer.step()
            mean = (matrix_of(self.ring) @ numpy.arange(1, bf.size() + 1))[bf.rank()]
            self.assert_close([tied[0].weight], [numpy.full((3, 3), mean - 1.0)])
            self.assert_close([tied[2].weight], [numpy.full((3, 3), mean)])
            momentum = optimizer.state[tied[0].weight]["momentum_buffer"]
            expected = 2.0 if kind == "DmSGD" else 0.5 * (bf.rank() + 1 - (mean - 1.0)) / 0.5
            self.assert_close([momentum], [numpy.full((3, 3), expected)])

    def test_half_precision_is_averaged_in_float32(self):
        """Rounded once, at the end: in bfloat16, 256 + 1 is 256, and so a sum of 1 and of 256 in steps loses all ones."""
        bf.set_topology(bf.FullyConnectedGraph(bf.size()))
        mean = torch.tensor(256.0 / bf.size() + (bf.size() - 1) / bf.size())
        for dtype in (torch.bfloat16, torch.float16):
            for wrap in KINDS.values():
                model = torch.nn.Linear(2, 2, bias=False).to(dtype)
                torch.nn.init.constant_(model.weight, 256.0 if bf.rank() == 0 else 1.0)
                optimizer = wrap(torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5), model)
                model.weight.grad = torch.zeros_like(model.weight)
                optimizer.step()
                self.assertEqual(model.weight.dtype, dtype)
                self.assertTrue(torch.all(model.weight == mean.to(dtype)), model.weight)
                momentum = optimizer.state[model.weight]["momentum_buffer"]
                self.assertEqual(momentum.dtype, dtype)
                if wrap is bf.DistributedQGDmSGDOptimizer:
                    own = torch.tensor(256.0 if bf.rank() == 0 else 1.0)
                    self.assertTrue(torch.all(momentum == (0.5 * (own - mean.to(dtype).float())).to(dtype)))

    def test_state_goes_round(self):
        for wrap in KINDS.values():
            whole, its_optimizer = train(wrap)
            model, optimizer = train(wrap, 3)
            saved, parameters = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
            self.assertEqual(sorted(saved["state"]), [0, 1])
            model = make_model(99)
            model.load_state_dict(parameters)
            optimizer = wrap(make_optimizer(model), model)
            optimizer.load_state_dict(saved)
            go_on(model, optimizer, range(3, STEPS))
            self.assert_equal(state_of(model, optimizer), state_of(whole, its_optimizer))

    def test_mistakes(self):
        model = make_model(0)
        sgd = lambda **options: torch.optim.SGD(model.parameters(), lr=0.1, **options)
        for name, wrap in KINDS.items():
            for optimizer, text in ((torch.optim.Adam(model.parameters()), f"{name}.*torch.optim.SGD, not Adam"),
                                    (sgd(), "momentum < 1, which is 0"), (sgd(momentum=1.0), "momentum < 1, which is 1.0"),
                                    (sgd(momentum=0.5, dampening=0.1), "dampening, which is 0.1")):
                with self.assertRaisesRegex(ValueError, text):
                    wrap(optimizer, model)
            wrapped = wrap(sgd(momentum=0.5), model)
            with self.assertRaisesRegex(ValueError, "not wrapped yet"):
                wrap(wrapped, model)
            wrapped.leave()
            with self.assertRaisesRegex(ValueError, "CommunicationType"):
                wrap(sgd(momentum=0.5), model, "neighbor_allreduce")
            with self.assertRaisesRegex(ValueError, "no parameters of the model"):
                wrap(sgd(momentum=0.5), make_model(1))
            wrapped = wrap(sgd(momentum=0.5), model)
            wrapped.param_groups[0]["momentum"] = 0
            with self.assertRaisesRegex(ValueError, "momentum"):
                wrapped.step()
            wrapped.leave()
        for mu in (-0.1, 1.0):
            with self.assertRaisesRegex(ValueError, "mu < 1"):
                bf.DistributedQGDmSGDOptimizer(sgd(momentum=0.5), model, mu=mu)

    def test_a_wrong_graph_leaves_the_local_step(self):
        """All ranks get the error of the check. QG-DmSGD's momentum is then that of a step without communication."""
        if bf.size() < 2:
            return  # it needs neighbors
        for wrap in KINDS.values():
            alone, its_optimizer = train(lambda plain, model: wrap(plain, model, CommunicationType.empty), 1)
            model = make_model(bf.rank())
            optimizer = wrap(make_optimizer(model), model)
            optimizer.enable_topo_check = True
            optimizer.self_weight, optimizer.src_weights, optimizer.dst_weights = 0.5, {(bf.rank() + 1) % bf.size(): 0.5}, []
            loss_of(model, bf.rank(), 0).backward()
            with self.assertRaises(ValueError):
                optimizer.step()
            self.assert_equal(state_of(model, optimizer), state_of(alone, its_optimizer))


def matrix_of_machines():
    topology, count = bf.ExponentialGraph(bf.machine_size()), bf.machine_size()
    matrix = numpy.zeros((count, count))
    for machine in range(count):
        matrix[machine, machine], others = bf.GetRecvWeights(topology, machine)
        for other, weight in others.items():
            matrix[machine, other] = weight
    return matrix


if __name__ == "__main__":
    unittest.main()
