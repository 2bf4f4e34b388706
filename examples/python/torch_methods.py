"""Training by any method: dunlin-run -n 4 python3 torch_methods.py --method partial --slow 0:20

Each rank has samples of its own, and a model that it trains with the other ranks by the method. A slow rank sleeps
after each of its steps. At the end rank 0 prints how many steps each rank has made in the time that the fastest one
needed for all of its steps. With "partial", "ad-psgd", "async-parameter-server" and "stochastic --sync async", a slow
rank slows few others or none.
"""

import argparse
import time

import torch

import dunlin
import dunlin.torch as bf

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--method", default="partial", help="all-reduce, straggler-ring, local-sgd, stochastic, "
                                                        "partial, ad-psgd, parameter-server or async-parameter-server")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--slow", metavar="RANK:MS", help="this rank sleeps for so many milliseconds after each step")
parser.add_argument("--servers", type=int, help="of the parameter servers: how many of the last ranks serve")
parser.add_argument("--section-length", type=int, help="of local-sgd and partial: steps between averages")
parser.add_argument("--graph", help="of stochastic and ad-psgd")
parser.add_argument("--sync", help="of stochastic: notify-ack, bsp or async")
parser.add_argument("--groups", help="of partial: smart, random, buffered or static")
parser.add_argument("--overlap", action="store_true", default=None,
                    help="average while the next gradient is computed, except with all-reduce and ad-psgd")
arguments = vars(parser.parse_args())
method, steps, slow = arguments.pop("method"), arguments.pop("steps"), arguments.pop("slow")
options = {name: value for name, value in arguments.items() if value is not None}

torch.set_num_threads(1)
bf.init()
slow_rank, pause = (float(part) for part in slow.split(":")) if slow else (-1, 0)

torch.manual_seed(bf.rank())
truth = torch.linspace(-1, 1, 8)
x = torch.randn(200, 8)
y = x @ truth

model = torch.nn.Linear(8, 1, bias=False)
bf.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = bf.DistributedOptimizer(optimizer, model, method=method, **options)

is_server = getattr(optimizer, "is_server", False)
took = []
if is_server:
    optimizer.serve()
    took.append(float("inf"))
else:
    began = time.monotonic()
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(x).squeeze(1) - y) ** 2).mean().backward()
        optimizer.step()
        if bf.rank() == slow_rank:
            time.sleep(pause / 1000)
        took.append(time.monotonic() - began)
optimizer.leave()

error = (model.weight.detach().squeeze(0) - truth).abs().max() * (not is_server)  # a server has no model of its own
ends = dunlin.all_gather(torch.tensor([took[-1]], dtype=torch.float64))
counts = dunlin.all_gather(torch.tensor([sum(each <= ends.min() for each in took)])).reshape(-1).tolist()
errors = dunlin.all_gather(error.reshape(1)).reshape(-1).tolist()
if bf.rank() == 0:
    print(f"{method}: steps of the ranks when the first has made {steps}: {counts}; largest error {max(errors):.1e}")
assert max(errors) < 1e-2, errors
bf.shutdown()
