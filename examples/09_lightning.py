"""
Lightning
=========

The same penalty in a Lightning module, on two processes (needs `pip install lightning`).
"""

# %%
# Lightning starts the processes and averages gradients, which is what GlobalBatch expects: no factor needed.
import sys
from importlib.util import find_spec

if find_spec("lightning") is None:
    print("lightning is not installed: pip install lightning")
    sys.exit()

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from frhsic import GDP, Penalty
from frhsic.collectives import all_mean, n_processes
from frhsic.datasets import make_u_shaped
from frhsic.engine import GlobalBatch, make_net
from frhsic.engine.nets import binary_cross_entropy
from frhsic.kernels import Gaussian, Linear
from frhsic.sketching import FeatureHSIC


class Model(lightning.LightningModule):
    def __init__(self, lam):
        super().__init__()
        self.lam = lam
        self.net = make_net(2, 1, generator=torch.Generator().manual_seed(0))
        self.penalty = GlobalBatch(
            Penalty(FeatureHSIC(Linear()), on="prediction")
            + Penalty(FeatureHSIC(Gaussian("scale-free"), estimator="unbiased"))
        )

    def on_train_start(self):
        # By now there is a process group: one set of scales for all processes, from rows of all.
        x, _, s = next(iter(self.trainer.train_dataloader))
        with torch.no_grad():
            self.penalty = self.penalty.calibrate(*self.net(x), s)

    def training_step(self, batch):
        x, y, s = batch
        z, prediction = self.net(x)
        return all_mean(binary_cross_entropy(prediction, y)) + self.lam * self.penalty(z, prediction, s)

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=3e-3)


# %%
# Batches of 128 rows on each of two processes: Lightning shares the rows out.
if __name__ == "__main__":
    task = make_u_shaped(3_000, random_state=0)
    rows = TensorDataset(
        *(torch.tensor(part).float() for part in (task.data, task.target, task.sensitive_features))
    )
    model = Model(lam=10.0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=20,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(rows, batch_size=128, shuffle=True))
    test = make_u_shaped(10_000, random_state=1)
    with torch.no_grad():
        score = model.net(torch.tensor(test.data).float())[1].sigmoid().double()
    gap = GDP()(score, torch.tensor(test.sensitive_features)).item()
    if trainer.is_global_zero:
        print(f"{n_processes()} processes: mean gap of the score along S {gap:.3f}")
