"""Decentralized training with dunlin.torch: dunlin-run -n 4 python3 torch_optimizer.py

Each rank has samples of its own. After each step it averages its model with those of its neighbors in an exponential
graph; no rank waits for any but its neighbors.
"""

import torch

import dunlin.torch as bf

STEPS = 300

torch.set_num_threads(1)
bf.init()
bf.set_topology(bf.topology_util.ExponentialGraph(bf.size()) if bf.size() > 1 else None)
torch.manual_seed(bf.rank())
truth = torch.linspace(-1, 1, 8)
x = torch.randn(200, 8)
y = x @ truth

model = torch.nn.Linear(8, 1, bias=False)
optimizer = bf.DistributedAdaptWithCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                                    bf.CommunicationType.neighbor_allreduce)
for _ in range(STEPS):
    optimizer.zero_grad()
    ((model(x).squeeze(1) - y) ** 2).mean().backward()
    optimizer.step()

error = (model.weight.detach().squeeze(0) - truth).abs().max()
worst = bf.allreduce(error.reshape(1), average=False, name="error").item() if bf.size() > 1 else error.item()
if bf.rank() == 0:
    print(f"{bf.size()} ranks, sum of the ranks' largest errors: {worst:.1e}")
assert worst < 1e-2, worst
bf.shutdown()
