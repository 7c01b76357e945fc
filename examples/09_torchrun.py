"""
Training by several processes
=============================

Training by several processes: torchrun --nproc_per_node 2 examples/09_torchrun.py

Each process has rows of its own, in uneven shards. Loss and penalty are those of the rows of all of them, so
that the result is that of one process: `python examples/09_torchrun.py` prints the same numbers.
"""

# %%
# The shard of this process. The first process has two thirds of the rows.
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from frhsic import GDP, Penalty
from frhsic.collectives import all_mean, n_processes
from frhsic.datasets import make_u_shaped
from frhsic.engine import GlobalBatch, make_net
from frhsic.engine.nets import binary_cross_entropy
from frhsic.kernels import Gaussian, Linear
from frhsic.sketching import FeatureHSIC

if "RANK" in os.environ:  # torchrun sets it
    dist.init_process_group("gloo")
rank = dist.get_rank() if n_processes() > 1 else 0
task = make_u_shaped(3_000, random_state=0)
x, y, s = (torch.tensor(part).float() for part in (task.data, task.target, task.sensitive_features))
ends = [0, *(2_000 + 1_000 * j // max(n_processes() - 1, 1) for j in range(n_processes() - 1)), 3_000]
first, last = ends[rank], ends[rank + 1]

# %%
# The same net everywhere (DistributedDataParallel averages its gradients), and a penalty whose scales are
# fixed on rows of all processes.
net = make_net(2, 1, generator=torch.Generator().manual_seed(0))
model = DistributedDataParallel(net) if n_processes() > 1 else net
penalty = GlobalBatch(
    Penalty(FeatureHSIC(Linear()), on="prediction")
    + Penalty(FeatureHSIC(Gaussian("scale-free"), estimator="unbiased"))
)
with torch.no_grad():
    penalty = penalty.calibrate(*net(x[first:last]), s[first:last])
adam = torch.optim.Adam(net.parameters(), lr=3e-3)

# %%
# Every process draws the global batch and takes those of its rows that are in it, perhaps none.
draws = torch.Generator().manual_seed(1)
for _ in range(20):  # epochs
    for batch in torch.randperm(3_000, generator=draws).split(256):
        mine = batch[(batch >= first) & (batch < last)]
        z, prediction = model(x[mine])
        loss = all_mean(binary_cross_entropy(prediction, y[mine])) + 10.0 * penalty(z, prediction, s[mine])
        adam.zero_grad()
        loss.backward()
        adam.step()

# %%
# What is left, on rows that nobody has seen.
test = make_u_shaped(10_000, random_state=1)
with torch.no_grad():
    score = net(torch.tensor(test.data).float())[1].sigmoid().double()
if rank == 0:
    right = float(((score[:, 0] > 0.5) == torch.tensor(test.target == 1)).double().mean())
    gap = GDP()(score, torch.tensor(test.sensitive_features)).item()
    print(f"{n_processes()} processes: accuracy {right:.3f}, mean gap of the score along S {gap:.3f}")
if n_processes() > 1:
    dist.destroy_process_group()
