"""DistributedDataParallel over Dunlin: dunlin-run -n 4 python3 ddp.py, or torchrun --nproc_per_node 4 ddp.py"""

import torch
import torch.distributed as dist

import dunlin.c10d  # registers the backend

STEPS = 100

torch.set_num_threads(1)
dist.init_process_group("dunlin")
torch.manual_seed(dist.get_rank())
x = torch.randn(64, 16)
y = x.sum(1, keepdim=True)

network = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
model = torch.nn.parallel.DistributedDataParallel(network)  # sends rank 0's parameters to all ranks
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
losses = []
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()  # averages gradients over all ranks while it computes further ones
    optimizer.step()
    losses.append(loss.item())

mine = torch.cat([p.detach().flatten() for p in model.parameters()])
first = mine.clone()
dist.broadcast(first, 0)
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} ranks, loss {losses[0]:.2f} -> {losses[-1]:.2f}")
assert torch.equal(mine, first), "the ranks' models differ"
assert losses[-1] < losses[0] / 2, losses[-1]
dist.destroy_process_group()
