"""What training promises: naive twins of each step, the same bits again, also after a kill, honest ends."""

import copy
import dataclasses
import io
import itertools
import math
import os
import pty
import random
import select
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from frhsic import HSIC, FRHSICClassifier, Penalty, Training, _progress
from frhsic import _tensorfile as tensorfile
from frhsic.data import Sensitive
from frhsic.dependence import Adversary, Dependence
from frhsic.engine import TrainingError, checkpoint, make_net
from frhsic.engine.nets import Net, binary_cross_entropy, cross_entropy, squared_error
from frhsic.engine.options import Options
from frhsic.engine.rows import Rows, make_batches
from frhsic.engine.train import train
from frhsic.kernels import Gaussian

N, BATCH, RATE = 100, 32, 1e-2


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def table(n=N, *, weighted=False, seed=0):
    g = generator(seed)
    x = torch.randn(n, 3, generator=g)
    s = x[:, 1:2] + 0.3 * torch.randn(n, 1, generator=g)
    y = (x[:, 0] + 0.5 * torch.randn(n, generator=g) > 0).float()
    w = torch.rand(n, generator=g) + 0.1 if weighted else None
    w = None if w is None else w / w.mean()
    return Rows(x, y, Sensitive(s, ("s",), ("continuous",)), w, w, y.long())


def net(seed=0, dropout=False):
    made = make_net(3, 1, encoder=(5, 2), generator=generator(seed))
    if dropout:
        made.encoder = nn.Sequential(*made.encoder, nn.Dropout(0.3))
    return made


def run(rows=None, *, dropout=False, seed=0, **changes):
    rows = table() if rows is None else rows
    settings = {"penalty": Penalty(HSIC()), "epochs": 3, "batch_size": BATCH, "learning_rate": RATE} | changes
    loss = settings.pop("loss", binary_cross_entropy)
    model = settings.pop("net", None) or net(dropout=dropout)
    validation = settings.pop("validation", None)
    options = Options(lams=[settings.pop("lam", 1.0)], **settings)
    return train(model, loss, rows, options, generator=generator(seed), validation=validation)


def weights_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def identical(a, b):
    a, b = (x if isinstance(x, dict) else x.state_dict() for x in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def close(actual, expected, tolerance=1e-6):
    actual, expected = (x if isinstance(x, dict) else x.state_dict() for x in (actual, expected))
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=tolerance, atol=tolerance, msg=lambda m: m)


# Batches and losses


def test_batches_are_full_but_for_a_last_one_between_half_and_one_and_a_half():
    for n, size in itertools.product(range(1, 60), (1, 2, 3, 7, 10, 100)):
        parts = make_batches(n, size, generator(n))
        assert sorted(torch.cat(parts).tolist()) == list(range(n))
        lengths = [len(part) for part in parts]
        assert set(lengths[:-1]) <= {size}
        assert lengths[-1] < max(1.5 * size, size + 4)
        assert len(parts) == 1 or lengths[-1] >= max(size / 2, min(4, size))
        assert [len(part) for part in make_batches(n, size, None)] == lengths


def test_batches_are_drawn_from_the_generator_and_in_order_without_one():
    assert torch.cat(make_batches(50, 8, None)).tolist() == list(range(50))
    g = generator()
    first, second = (torch.cat(make_batches(50, 8, g)).tolist() for _ in range(2))
    assert first != second
    assert first == torch.cat(make_batches(50, 8, generator())).tolist()


@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_losses_are_what_they_say_row_by_row(lead):
    g = generator()
    n, k = 6, 4
    logits = 3 * torch.randn(*lead, n, k, dtype=torch.float64, generator=g)
    codes = torch.randint(0, k, (n,), generator=g)
    values = torch.randn(n, k, dtype=torch.float64, generator=g)
    bits = torch.tensor([0.0, 1, 1, 0, 1, 0], dtype=torch.float64)
    losses = {
        "binary": binary_cross_entropy(logits[..., :1], bits),
        "classes": cross_entropy(logits, codes),
        "squares": squared_error(logits, values),
        "square": squared_error(logits[..., :1], values[:, 0]),
    }
    for where in itertools.product(*map(range, lead), range(n)):
        row, i = logits[where].numpy(), where[-1]
        p = 1 / (1 + math.exp(-row[0]))
        expected = {
            "binary": -math.log(p if bits[i] == 1 else 1 - p),
            "classes": -math.log(math.exp(row[codes[i]]) / sum(math.exp(v) for v in row)),
            "squares": sum((row[j] - float(values[i, j])) ** 2 for j in range(k)) / k,
            "square": (row[0] - float(values[i, 0])) ** 2,
        }
        for name, loss in losses.items():
            assert loss.shape == (*lead, n)
            assert loss[where].item() == pytest.approx(expected[name], rel=1e-10)


def test_losses_of_extreme_logits_are_finite():
    logits = torch.tensor([[1e4], [-1e4]])
    assert binary_cross_entropy(logits, torch.tensor([0.0, 1.0])).tolist() == [1e4, 1e4]
    both = torch.cat([logits, -logits], dim=1)
    assert cross_entropy(both, torch.tensor([1, 0])).tolist() == [2e4, 2e4]


def test_layers_are_drawn_from_the_generator_alone_and_modules_are_copied():
    before = torch.get_rng_state()
    a, b, c = (make_net(3, 1, generator=generator(seed)) for seed in (0, 0, 1))
    assert identical(a, b)
    assert not identical(a, c)
    assert torch.equal(torch.get_rng_state(), before)
    first = a.encoder[0]
    assert first.weight.abs().max() <= 3**-0.5
    assert first.weight.detach().std() == pytest.approx(3**-0.5 / 3**0.5, rel=0.1)
    encoder, head = nn.Linear(3, 2), nn.Linear(2, 1)
    made = make_net(3, 1, encoder=encoder, head=head)
    assert made.encoder is not encoder
    assert made.head is not head
    assert identical(made.encoder, encoder)


# A loop by hand


def by_hand(rows, dependence, *, lam, epochs, given=None, every=None, clip=None, cosine=False, dropout=False):
    """Train as a user of plain PyTorch would, and return the net, the critic and what was seen."""
    g = generator()
    model = net(dropout=dropout)
    chosen = torch.ones(len(rows), dtype=torch.bool) if given is None else rows.labels == given
    s, w = rows.s.values, rows.weights
    model.eval()
    with torch.no_grad():
        z = model.encoder(rows.x)[chosen]
    child = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=g)))
    fixed = dependence.calibrate(z, s[chosen], child, weights=None if w is None else w[chosen], side="s")
    torch.manual_seed(int(torch.randint(2**62, (1,), generator=g)))
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    players = list(fixed.parameters())
    critic = torch.optim.Adam(players, lr=RATE) if players else None
    history, sigma = [], None
    model.train()
    held = fixed
    for epoch in range(epochs):
        rate = RATE * (0.5 * (1 + math.cos(math.pi * epoch / epochs)) if cosine else 1.0)
        for optimizer in (adam, critic):
            if optimizer is not None:
                optimizer.param_groups[0]["lr"] = rate
        order = torch.randperm(len(rows), generator=g)
        sums = [0.0, 0.0]
        parts = [order[:BATCH], order[BATCH : 2 * BATCH], order[2 * BATCH :]]
        assert len(rows) == 100  # the last four rows join the third batch
        for part in parts:
            z = model.encoder(rows.x[part])
            logits = model.head(z)[:, 0]
            each = nn.functional.binary_cross_entropy_with_logits(logits, rows.y[part], reduction="none")
            loss = each.mean() if w is None else (w[part] * each).mean()
            inside = chosen[part]
            zs, ss = z[inside], s[part][inside]
            ws = None if w is None else w[part][inside]
            if every is not None and epoch % every == 0:
                sigma = median_distance(zs)
                held = HSIC(Gaussian(sigma), fixed.kernel_s)
            if critic is not None:
                critic.zero_grad()
                (-fixed(zs.detach(), ss, ws)).backward()
                critic.step()
            value = (held if every is not None else fixed)(zs, ss, ws)
            adam.zero_grad()
            (loss + lam * value).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            adam.step()
            sums[0] += loss.item()
            sums[1] += value.item()
        history.append((sums[0] / 3, sums[1] / 3))
    return model.eval(), fixed, history, sigma


def median_distance(x):
    pairs = [float((a - b).norm()) for a, b in itertools.combinations(x.detach().double(), 2)]
    return sorted(pairs)[(len(pairs) - 1) // 2]


TWINS = {
    "HSIC": ({}, {}),
    "HSIC weighted": ({}, {"weighted": True}),
    "HSIC normalized": ({"dependence": HSIC(normalized=True)}, {}),
    "HSIC given y": ({"given": 1}, {}),
    "HSIC given y weighted": ({"given": 1}, {"weighted": True}),
    "HSIC held": ({"every": 2}, {}),
    "Adversary": ({"dependence": Adversary((4,))}, {}),
    "Adversary weighted": ({"dependence": Adversary((4,))}, {"weighted": True}),
    "Adversary given y": ({"dependence": Adversary((4,), n_bins=3), "given": 1}, {}),
    "clipped": ({"clip": 0.05}, {}),
    "cosine": ({"cosine": True, "dependence": Adversary((4,))}, {}),
    "dropout": ({"dropout": True}, {}),
    "dropout and adversary": ({"dropout": True, "dependence": Adversary((4,))}, {}),
}


@pytest.mark.parametrize("name", TWINS)
def test_training_is_the_loop_that_one_would_write_by_hand(name):
    options, data = TWINS[name]
    rows = table(**data)
    options = {"dependence": HSIC(), **options}
    dependence, given = options["dependence"], options.get("given")
    with torch.random.fork_rng():
        twin, fixed, history, sigma = by_hand(rows, lam=2.0, epochs=3, **options)
    done = run(
        rows,
        lam=2.0,
        penalty=Penalty(dependence, given=None if given is None else {"y": given}),
        dropout=options.get("dropout", False),
        training=Training(
            every=options.get("every"),
            clip=options.get("clip"),
            schedule="cosine" if options.get("cosine") else "constant",
        ),
    )
    close(done.net, twin)
    seen = [(record.loss, record.penalty) for record in done.history]
    np.testing.assert_allclose(seen, history, rtol=1e-4, atol=1e-7)
    if list(fixed.parameters()):
        for own, expected in zip(done.penalty.parameters(), fixed.parameters(), strict=True):
            torch.testing.assert_close(own, expected, rtol=1e-6, atol=1e-6)
    if sigma is not None:
        assert done.penalty.terms[0].dependence.kernel_z.bandwidth == pytest.approx(sigma, rel=1e-5)


@pytest.mark.parametrize("name", ["HSIC", "Adversary", "dropout"])
def test_the_loop_by_hand_gives_the_same_bits(name):
    options = {"dependence": HSIC(), **TWINS[name][0]}
    with torch.random.fork_rng():
        twin, *_ = by_hand(table(), lam=2.0, epochs=3, **options)
    done = run(lam=2.0, penalty=Penalty(options["dependence"]), dropout=options.get("dropout", False))
    assert identical(done.net, twin)


def test_a_penalty_serves_a_plain_loop_as_it_is():
    rows = table(200)
    y = (rows.s.values[:, 0] > 0).float()
    measure = HSIC(normalized=True)
    values = []
    for lam in (0.0, 10.0):
        model = net()
        penalty = Penalty(HSIC(normalized=True)) + 0.5 * Penalty(HSIC(), on="prediction", given="y")
        adam = torch.optim.Adam(model.parameters(), lr=RATE)
        for _ in range(60):
            z, prediction = model(rows.x)
            loss = binary_cross_entropy(prediction, y).mean()
            objective = loss + lam * penalty(z, prediction, rows.s.values, y)
            adam.zero_grad()
            objective.backward()
            adam.step()
        with torch.no_grad():
            values.append(float(measure(model.encoder(rows.x), rows.s)))
    assert values[1] < 0.2 * values[0]


# The same bits


@pytest.mark.parametrize("dropout", [False, True], ids=["", "dropout"])
@pytest.mark.parametrize(
    "penalty",
    [Penalty(HSIC()), Penalty(Adversary((4,))), Penalty(HSIC()) + Penalty(Adversary((4,), n_bins=3))],
    ids=["HSIC", "Adversary", "sum"],
)
def test_the_same_seed_gives_the_same_bits(penalty, dropout):
    a, b, c = (run(penalty=penalty, dropout=dropout, seed=seed) for seed in (0, 0, 1))
    assert identical(a.net, b.net)
    assert identical(a.penalty, b.penalty)
    assert not identical(a.net, c.net)


def test_batches_beyond_the_rows_of_a_median_give_the_same_bits():
    rows = table(2_100)
    a, b = (run(rows, epochs=1, batch_size=2_100, penalty=Penalty(HSIC(block_size=700))) for _ in range(2))
    assert identical(a.net, b.net)


def test_training_does_not_touch_the_penalty_that_was_passed():
    penalty = Penalty(Adversary((4,)))
    done = run(penalty=penalty)
    assert list(penalty.parameters()) == []
    before = weights_of(done.penalty)
    again = run(penalty=done.penalty, seed=1)
    assert identical(done.penalty, before)
    assert not identical(again.penalty, before)


@pytest.mark.parametrize("fails", [False, True])
def test_global_generators_are_left_alone_also_by_a_training_that_fails(fails):
    before = torch.get_rng_state()
    if fails:
        with pytest.raises(TrainingError):
            run(dropout=True, learning_rate=1e6, epochs=20)
    else:
        run(dropout=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_at_lam_zero_neither_penalty_nor_sensitive_columns_are_needed():
    rows = table()
    bare = Rows(rows.x, rows.y)
    done = run(bare, lam=0.0, penalty=None)
    assert done.penalty is None
    assert identical(done.net, run(rows, lam=0.0).net)
    with pytest.raises(ValueError, match=r"^'rows' must have sensitive columns"):
        run(bare)


# Scales


@pytest.mark.parametrize("every", [2, 3, 20])
def test_the_scale_of_z_is_that_of_the_last_batch_of_the_last_epoch_that_was_due(every):
    epochs = 6
    done = run(epochs=epochs, training=Training(every=every))
    due = max(epoch for epoch in range(epochs) if epoch % every == 0)
    with torch.random.fork_rng():
        *_, sigma = by_hand(table(), HSIC(), lam=1.0, epochs=due + 1, every=every)
    measure = done.penalty.terms[0].dependence
    assert measure.kernel_z.bandwidth == pytest.approx(sigma, rel=1e-4)


@pytest.mark.parametrize("every", [None, 2])
def test_the_scale_of_s_is_that_of_all_rows_once(every):
    rows = table()
    done = run(rows, training=Training(every=every))
    measure = done.penalty.terms[0].dependence
    assert measure.kernel_s.bandwidth == pytest.approx(median_distance(rows.s.values), rel=1e-5)
    if every is None:
        assert measure.kernel_z.bandwidth == "median"


class Watched(HSIC):
    """An HSIC that notes what it is evaluated with."""

    calls = ()

    def _value(self, z, s, w):
        value = super()._value(z, s, w)
        type(self).calls += ((self.kernel_z.bandwidth, self.kernel_s.bandwidth, len(z)),)
        return value


def test_between_the_epochs_that_are_due_the_scales_are_held():
    Watched.calls = ()
    run(epochs=5, penalty=Penalty(Watched()), training=Training(every=2))
    sigmas = np.array([call[0] for call in Watched.calls]).reshape(5, 3)
    assert [len(set(row)) for row in sigmas] == [3, 1, 3, 1, 3]
    assert sigmas[1, 0] == sigmas[0, -1]
    assert sigmas[3, 0] == sigmas[2, -1]
    assert len({call[1] for call in Watched.calls}) == 1
    assert {call[2] for call in Watched.calls} == {32, 36}


# Levels of y


def test_levels_with_too_few_rows_are_left_out_and_counted():
    rows = table()
    labels = rows.labels.clone()
    labels[torch.arange(100) % 12 == 0] = 2  # nine rows
    rare = dataclasses.replace(rows, labels=labels)
    with pytest.warns(UserWarning, match=r"a label of 9 rows has fewer\. Use batch_size=100 "):
        done = run(rare, penalty=Penalty(HSIC(), given="y"))
    for record in done.history:
        counts = dict(record.skipped)
        assert 1 <= counts[2] <= 3
        assert len(record.terms) == 3
    for measure in (HSIC(), Adversary((4,))):  # a penalty that never acts is no penalty
        with pytest.raises(
            ValueError, match=r"^'y' must have 11 rows of every label .* Got a label of 9 rows"
        ):
            run(rare, penalty=Penalty(measure, given={"y": 2}))


def test_a_plain_call_warns_of_levels_left_out():
    rows = table()
    labels = (torch.arange(100) < 10).long()
    penalty = Penalty(HSIC(), given={"y": 1})
    with pytest.warns(
        UserWarning, match=r"^1 labels of y with fewer than 11 rows .*'1'\. Use larger batches"
    ):
        assert penalty(rows.x, None, rows.s, labels) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert penalty.evaluate(rows.x, None, rows.s, labels).skipped == ((1, 10),)
        assert penalty(rows.x, None, rows.s, (torch.arange(100) < 11).long()) > 0


# Trouble


def test_a_loss_that_runs_away_stops_with_what_to_try():
    with pytest.raises(TrainingError) as caught:
        run(learning_rate=1e6, epochs=50)
    says = str(caught.value)
    assert says.startswith("Training stopped in epoch 0, step 2: the loss is ")
    for cure in ("learning_rate (now 1e+06)", "training=Training(clip=1.0)", "smaller lam (now 1)."):
        assert cure in says
    with pytest.raises(TrainingError, match=r"training=Training\(clip=1\.0\)\.$"):
        run(learning_rate=1e6, epochs=50, lam=0.0)


def broken_at(step, value):
    count = itertools.count()

    def loss(prediction, y):
        each = binary_cross_entropy(prediction, y)
        return each * value if next(count) == step else each

    return loss


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
def test_a_loss_that_leaves_the_numbers_stops_in_its_step(value):
    # Three steps an epoch.
    with pytest.raises(TrainingError, match=r"^Training stopped in epoch 2, step 1: the loss is "):
        run(loss=broken_at(7, value), epochs=5)


def test_one_outlying_batch_does_not_stop_training():
    assert run(loss=broken_at(7, 1e9), epochs=5, training=Training(clip=1.0)).history[2].loss > 1e6


class Breaks(Dependence):
    """A dependence whose value, or only whose gradient, leaves the numbers."""

    def __init__(self, where="value"):
        super().__init__()
        self.where = where

    def _value(self, z, s, w):
        if self.where == "value":
            return z.sum() * math.nan
        return ((z - z).sum()).sqrt()  # 0, with an infinite slope


def test_a_penalty_that_leaves_the_numbers_is_named():
    with pytest.raises(TrainingError, match=r"epoch 0, step 0: the penalty is nan.*smaller lam \(now 1\)"):
        run(penalty=Penalty(Breaks()))


@pytest.mark.parametrize(("epochs", "batch_size"), [(3, BATCH), (1, N)])
def test_weights_that_left_the_numbers_are_never_given_back(epochs, batch_size):
    with pytest.raises(TrainingError, match="epoch 0"):
        run(penalty=Penalty(Breaks("gradient")), epochs=epochs, batch_size=batch_size)


def test_errors_on_held_out_rows_say_so():
    aside = table(20, seed=1)
    wrong = dataclasses.replace(aside, y=torch.full((20,), math.nan))
    with pytest.raises(TrainingError, match="epoch 0") as caught:
        run(validation=wrong)
    assert "on the held-out rows" in str(caught.value)


# How to train


def gradient_norms(**changes):
    norms = []

    def note(optimizer, *_):
        if not optimizer.defaults["maximize"]:
            parts = [p.grad for group in optimizer.param_groups for p in group["params"]]
            norms.append(math.sqrt(sum(float(part.square().sum()) for part in parts)))

    handle = register_optimizer_step_pre_hook(note)
    try:
        run(**changes)
    finally:
        handle.remove()
    return norms


def test_clipping_bounds_the_gradient():
    free = gradient_norms(lam=50.0)
    bound = 0.5 * max(free)
    clipped = gradient_norms(lam=50.0, training=Training(clip=bound))
    assert len(free) == len(clipped) == 9
    assert max(clipped) <= bound * (1 + 1e-5)
    assert sum(abs(norm - bound) < 1e-5 * bound for norm in clipped) >= 1
    assert min(clipped) < 0.99 * bound  # smaller ones are left as they are


def test_the_cosine_schedule_falls_from_the_rate_to_almost_nothing():
    done = run(epochs=8, training=Training(schedule="cosine"))
    rates = [record.learning_rate for record in done.history]
    expected = [RATE * math.cos(math.pi * epoch / 16) ** 2 for epoch in range(8)]
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    assert {record.learning_rate for record in run().history} == {RATE}


@pytest.mark.parametrize("penalty", [Penalty(HSIC()), Penalty(Adversary((4,)))], ids=["HSIC", "Adversary"])
def test_early_stopping_gives_back_the_weights_of_the_best_epoch(penalty):
    aside = table(60, seed=5)
    settings = {"penalty": penalty, "learning_rate": 0.1, "training": Training(patience=3)}
    done = run(validation=aside, epochs=100, **settings)
    best = done.best_epoch
    assert len(done.history) == best + 4 < 100
    objectives = [record.validation_loss + record.validation_penalty for record in done.history]
    assert best == int(np.argmin(objectives))
    # Held-out rows draw nothing: training alone up to that epoch gives the same bits.
    assert identical(done.net, run(epochs=best + 1, **settings).net)
    assert not done.net.training


def test_what_is_measured_on_held_out_rows_is_loss_and_penalty_there():
    aside = table(60, seed=5, weighted=True)
    done = run(table(weighted=True), validation=aside, epochs=2, batch_size=100, lam=3.0)
    record = done.history[done.best_epoch]
    with torch.no_grad():
        z, prediction = done.net(aside.x)
        loss = (aside.weights * binary_cross_entropy(prediction, aside.y)).mean()
        measure = done.penalty.terms[0].dependence
        assert record.validation_penalty == pytest.approx(float(measure(z, aside.s, aside.weights)), rel=1e-5)
    assert record.validation_loss == pytest.approx(float(loss), rel=1e-5)


def test_training_that_keeps_improving_uses_all_epochs():
    done = run(validation=table(60, seed=5), epochs=4, learning_rate=1e-4, training=Training(patience=1))
    assert len(done.history) == 4
    assert done.best_epoch == 3


def test_every_field_of_training_changes_something(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y, s = X[:, 0] + rng.normal(size=100) > 0, X[:, 1]

    def fit(**fields):
        model = FRHSICClassifier(
            lam=1.0,
            penalty=Penalty(HSIC()),
            encoder=(4,),
            epochs=30,
            batch_size=40,
            learning_rate=0.1,
            early_stopping=True,
            random_state=0,
            training=Training(**fields),
        )
        model.fit(X, y, sensitive_features=s)
        return [*model.predict_proba(X).ravel(), *(record["loss"] for record in model.history_)]

    changes = {
        "schedule": "cosine",
        "clip": 0.01,
        "validation_fraction": 0.3,
        "patience": 1,
        "every": 3,
        "last_batch": "keep",
        "scaling": "minmax",
        "noise": 0.1,
        "rebuild": 1.0,
        "penalty_every": 2,
    }
    base = fit()
    for field, value in changes.items():
        assert fit(**{field: value}) != base, field
    watched = {field.name for field in dataclasses.fields(Training)} - set(changes)
    # Below: what the first two change is the disk; the third is for limits.
    assert watched == {"checkpoint", "checkpoint_every", "limit_fraction"}
    assert fit(checkpoint=tmp_path / "file", checkpoint_every=2) == base
    assert fit(limit_fraction=0.5) == base
    limited = {"limit": {"gap": 0.5}, "epochs": 20, "random_state": 0}
    some, none = (
        FRHSICClassifier(**limited, training=Training(limit_fraction=share)).fit(X, y, sensitive_features=s)
        for share in (0.5, 0.0)
    )
    assert [one.reached_[0].n_trained for one in (some, none)] == [50, 100]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schedule", "linear"),
        ("scaling", "robust"),
        ("last_batch", "drop"),
        ("clip", 0.0),
        ("clip", math.nan),
        ("clip", math.inf),
        ("validation_fraction", 0.0),
        ("validation_fraction", 1.0),
        ("validation_fraction", math.nan),
        ("limit_fraction", 1.0),
        ("limit_fraction", -0.1),
        ("limit_fraction", "some"),
        ("limit_fraction", math.nan),
        ("patience", 0),
        ("patience", 2.0),
        ("every", 0),
        ("every", True),
        ("checkpoint_every", 0),
        ("patience", None),
        ("checkpoint_every", None),
    ],
)
def test_fields_that_make_no_sense_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=rf"^'{field}' must .*\. Got .*\. "):
        Training(**{field: value})


# Checkpoints


class Interrupt(BaseException):
    """What a kill is within a process."""


CHECKPOINTED = {
    "HSIC": {},
    "held HSIC": {"every": 3},
    "Adversary": {"penalty": Penalty(Adversary((4,)))},
    "binned Adversary and held HSIC": {
        "penalty": Penalty(Adversary((4,), n_bins=3)) + 0.5 * Penalty(HSIC(), given="y"),
        "every": 2,
    },
    "dropout": {"dropout": True},
    "early stopping": {"dropout": True, "validation": table(60, seed=5), "learning_rate": 0.1, "every": 2},
    "weighted cosine without penalty": {"rows": table(weighted=True), "lam": 0.0, "schedule": "cosine"},
}


def test_a_checkpoint_keeps_numbers_that_are_not_finite(tmp_path):
    """The best loss of a run that has none yet is infinite."""
    file = checkpoint.Checkpoint(tmp_path / "file", {"seed": 1})
    file.write({"best": torch.tensor([math.inf, math.nan])}, {})
    tensors, _ = file.read()
    assert tensors["best"][0] == math.inf
    assert tensors["best"][1].isnan()


def checkpointed(name, path, often=1, **changes):
    options = {**CHECKPOINTED[name], **changes}
    training = Training(
        checkpoint=path,
        checkpoint_every=often,
        every=options.pop("every", None),
        schedule=options.pop("schedule", "constant"),
        patience=2,
    )
    return run(options.pop("rows", None), epochs=options.pop("epochs", 7), training=training, **options)


def stopped_at(step, name, path, often=1):
    """Train until the given step of the net's optimizer, as if killed there."""
    count = itertools.count()

    def stop(optimizer, *_):
        if not optimizer.defaults["maximize"] and next(count) == step:
            raise Interrupt

    handle = register_optimizer_step_pre_hook(stop)
    try:
        with pytest.raises(Interrupt):
            checkpointed(name, path, often)
    finally:
        handle.remove()


@pytest.mark.parametrize("often", [1, 3])
@pytest.mark.parametrize("name", CHECKPOINTED)
def test_training_goes_on_after_an_interruption_to_the_same_bits(name, often, tmp_path):
    path = tmp_path / "run.safetensors"
    whole = checkpointed(name, None)
    for step in (2, 10, 19) if name != "early stopping" else (2, 7):
        if step >= 3 * len(whole.history):
            continue
        stopped_at(step, name, path, often)
        assert path.exists() == (step >= 3 * often)
        done = checkpointed(name, path, often)
        assert identical(done.net, whole.net)
        assert done.best_epoch == whole.best_epoch
        if whole.penalty is not None:
            assert identical(done.penalty, whole.penalty)
            assert repr(done.penalty) == repr(whole.penalty)
        for a, b in zip(done.history, whole.history, strict=True):
            assert dataclasses.replace(a, seconds=0) == dataclasses.replace(b, seconds=0)
        assert list(tmp_path.iterdir()) == []  # removed at the end


def test_several_interruptions_are_as_good_as_one(tmp_path):
    path = tmp_path / "run"
    for _ in range(3):
        stopped_at(5, "held HSIC", path)  # two epochs further each time, but for the step itself
    assert identical(checkpointed("held HSIC", path).net, checkpointed("held HSIC", None).net)


def test_a_checkpoint_is_written_as_often_as_asked_and_never_after_the_end(tmp_path, monkeypatch):
    path = tmp_path / "run"
    written = []
    write = checkpoint.Checkpoint.write

    def noted(self, tensors, document):
        write(self, tensors, document)
        written.append(len(document["histories"][0]))

    monkeypatch.setattr(checkpoint.Checkpoint, "write", noted)
    checkpointed("HSIC", path, often=2)
    assert written == [2, 4, 6]
    assert not path.exists()


OTHERS = {
    "lam": {"lam": 2.0},
    "penalty": {"penalty": Penalty(HSIC(normalized=True))},
    "epochs": {"epochs": 8},
    "batch_size": {"batch_size": 25},
    "learning_rate": {"learning_rate": 2e-2},
    "training": {"every": 2},
    "loss": {"loss": squared_error},
    "data": {"rows": table(seed=1)},
    "initial weights": {"net": net(seed=1)},
    "random_state": {"seed": 1},
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_call_is_refused_and_says_what_differs(what, tmp_path):
    path = tmp_path / "run"
    stopped_at(10, "HSIC", path)
    before = path.read_bytes()
    says = rf"^'checkpoint' must be of the same call\..* differs in \['{what}'\]\..*remove the file"
    with pytest.raises(ValueError, match=says):
        checkpointed("HSIC", path, **OTHERS[what])
    assert path.read_bytes() == before
    assert identical(checkpointed("HSIC", path).net, checkpointed("HSIC", None).net)


def test_a_checkpoint_of_an_older_version_is_refused_and_says_what_to_do(tmp_path):
    path = tmp_path / "run"
    stopped_at(10, "HSIC", path)
    tensors, document = tensorfile.read(path, kind=checkpoint.KIND)
    path.write_bytes(tensorfile.pack(tensors, document | {"version": 2}, version=2))
    says = r"^'checkpoint' must have version 4\. Got 2\. An older .*Remove it"
    with pytest.raises(tensorfile.TensorFileError, match=says):
        checkpointed("HSIC", path)


def test_other_weights_held_out_rows_kinds_and_modules_are_other_calls(tmp_path):
    path = tmp_path / "run"
    stopped_at(10, "HSIC", path)
    rows = table()
    categorical = dataclasses.replace(rows, s=Sensitive(rows.s.values, ("s",), ("categorical",)))
    renamed = dataclasses.replace(rows, s=Sensitive(rows.s.values, ("age",), ("continuous",)))
    for changes in (
        {"rows": dataclasses.replace(rows, weights=torch.ones(100))},
        {"validation": table(60, seed=5)},
        {"rows": categorical},
        {"rows": renamed},
        {"dropout": True},
    ):
        with pytest.raises(ValueError, match="must be of the same call"):
            checkpointed("HSIC", path, **changes)


@pytest.mark.parametrize("damage", ["cut", "header", "weights", "empty", "text", "model", "directory"])
def test_a_damaged_checkpoint_is_refused_and_left_there(damage, tmp_path):
    path = tmp_path / "run"
    stopped_at(10, "held HSIC", path)
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-100])
    elif damage == "header":
        path.write_bytes(bytes([data[0] ^ 255]) + data[1:])
    elif damage == "weights":  # one bit, in the middle of the numbers
        place = (len(data) + 8 + int.from_bytes(data[:8], "little")) // 2
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not a checkpoint at all")
    elif damage == "model":
        tensors, document = tensorfile.read(path, kind=checkpoint.KIND)
        tensorfile.write(path, tensors, {**document, "format": "frhsic-model"})
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises((ValueError, OSError)):
        checkpointed("held HSIC", path)
    assert path.exists()


@pytest.mark.parametrize("group", ["net", "optimizer", "held", "random"])
def test_a_checkpoint_without_a_part_of_the_state_is_refused(group, tmp_path):
    path = tmp_path / "run"
    stopped_at(10, "held HSIC", path)
    tensors, document = tensorfile.read(path, kind=checkpoint.KIND)
    kept = {name: value for name, value in tensors.items() if not name.startswith(f"{group}.")}
    assert len(kept) < len(tensors)
    tensorfile.write(path, kept, document)
    with pytest.raises(ValueError, match=r"'checkpoint'|'path'"):
        checkpointed("held HSIC", path)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)], ids=["None", "RandomState"])
def test_random_states_that_move_on_keep_no_checkpoint(random_state, tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = FRHSICClassifier(
        lam=0, epochs=2, random_state=random_state, training=Training(checkpoint=tmp_path / "run")
    )
    with pytest.raises(ValueError, match=r"^'random_state' must be an integer with Training"):
        model.fit(X, X[:, 0] > 0)


SCRIPT = textwrap.dedent("""
    import os, sys, time, traceback
    import numpy as np
    import torch
    from torch import nn
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    from frhsic import HSIC, FRHSICClassifier, FRHSICRegressor, Penalty, Training
    from frhsic.dependence import Adversary
    from frhsic import _tensorfile as tensorfile

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    s = rng.normal(size=120)
    X = np.column_stack([rng.normal(size=120), s + 0.3 * rng.normal(size=120)])
    y = X[:, 0] + 0.2 * rng.normal(size=120)
    SHARED = dict(epochs=60, batch_size=40, learning_rate=1e-2, random_state=0)

    def model(name, path):
        if name == "held":
            training = Training(checkpoint=path, every=3)
            return FRHSICClassifier(lam=1.0, encoder=(8, 4), training=training, **SHARED), y > 0
        if name == "adversary":
            training = Training(checkpoint=path)
            return FRHSICRegressor(lam=1.0, penalty=Penalty(Adversary((6,))), training=training, **SHARED), y
        if name == "budget":
            training = Training(checkpoint=path)
            return FRHSICRegressor(budget=0.5, encoder=(8, 4), training=training, **SHARED), y + s
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
        training = Training(checkpoint=path, patience=60, validation_fraction=0.3)
        shared = SHARED | dict(lam=1.0, encoder=encoder, early_stopping=True)
        return FRHSICClassifier(training=training, **shared), y > 0

    def fit(name, path):
        estimator, target = model(name, path)
        estimator.fit(X, target, sensitive_features=s)
        parts = {"encoder": estimator.encoder_, "head": estimator.head_, "penalty": estimator.penalty_}
        return {f"{key}.{k}": v for key, part in parts.items() for k, v in part.state_dict().items()}

    def forked(action, folder, name):
        # A process of its own, that need not import everything again.
        child = os.fork()
        if child:
            print(child, flush=True)
            return os.waitpid(child, 0)
        try:
            if action == "slowly":
                register_optimizer_step_pre_hook(lambda *_: time.sleep(0.01))
            tensors = fit(name, None if action == "whole" else f"{folder}/{name}.checkpoint")
            document = {"format": "weights", "version": tensorfile.VERSION}
            tensorfile.write(f"{folder}/{name}.{action}", tensors, document)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    folder, *names = sys.argv[1:]
    fit("held", None)  # what torch imports on the first step need not be imported nine times
    for action in ("slowly", "again", "whole"):
        for name in names:
            forked(action, folder, name)
""")
SCENARIOS = ("held", "adversary", "module", "budget")


def epochs_in(path):
    return len(tensorfile.read(path, kind=checkpoint.KIND)[1]["histories"][0]) if path.exists() else 0


def test_training_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    driver = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *SCENARIOS],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killed = {}
    try:
        for name in SCENARIOS:
            child = int(driver.stdout.readline())
            path = tmp_path / f"{name}.checkpoint"
            end = time.monotonic() + 60
            while epochs_in(path) < 4 and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(0.3 * random.random())  # any moment will do
            os.kill(child, signal.SIGKILL)
            killed[name] = epochs_in(path)
        told = driver.communicate(timeout=120)
    finally:
        driver.kill()
    assert told[1] == ""
    for name in SCENARIOS:
        assert 4 <= killed[name] < 60
        assert not (tmp_path / f"{name}.slowly").exists()
        again, whole = (
            tensorfile.read(tmp_path / f"{name}.{action}", kind="weights")[0] for action in ("again", "whole")
        )
        assert identical(again, whole), (name, killed)
        assert not (tmp_path / f"{name}.checkpoint").exists()


# Progress

BAR = textwrap.dedent("""
    import sys, time
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    from frhsic.engine.nets import make_net, squared_error
    from frhsic.engine.options import Options
    from frhsic.engine.rows import Rows
    from frhsic.engine.train import train

    x = torch.randn(64, 2)
    for pause in (0.02, 0.3):
        handle = register_optimizer_step_pre_hook(lambda *_: time.sleep(pause))
        train(make_net(2, 1), squared_error, Rows(x, x[:, 0]), Options(epochs=9), generator=torch.Generator())
        handle.remove()
        print("MARK", file=sys.stderr, flush=True)
""")


def test_a_bar_is_drawn_in_a_terminal_only_and_after_two_seconds(tmp_path):
    pytest.importorskip("rich")
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", BAR],
        stderr=side,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(side)
    told = b""
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if not select.select([main], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                piece = os.read(main, 65_536)
            except OSError:  # the terminal was closed
                break
            if not piece:
                break
            told += piece
    finally:
        process.kill()
        os.close(main)
    assert process.communicate(timeout=60)[0] == b""
    short, long, _ = told.split(b"MARK")
    assert short == b""
    assert b"training" in long
    assert b"%" in long


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_bar_waits_for_its_time_and_for_a_terminal(stream, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream())
    run()
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(_progress, "_PATIENCE", -1.0)
    run()
    assert ("training" in sys.stderr.getvalue()) == (stream is Terminal)


def test_without_rich_there_is_no_bar_and_no_trouble(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(_progress, "_PATIENCE", -1.0)
    for name in ("rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    run()
    assert sys.stderr.getvalue() == ""


def test_training_prints_nothing(capfd):
    run()
    with pytest.raises(TrainingError):
        run(learning_rate=1e6, epochs=20)
    assert capfd.readouterr() == ("", "")


def test_rows_move_together():
    rows = table(weighted=True)
    index = torch.tensor([5, 2, 2])
    some = rows[index]
    for field in ("x", "y", "weights", "loss_weights", "labels"):
        assert torch.equal(getattr(some, field), getattr(rows, field)[index])
    assert torch.equal(some.s.values, rows.s.values[index])
    moved = rows.to(torch.device("cpu"), torch.float64)
    assert {moved.x.dtype, moved.y.dtype, moved.s.values.dtype, moved.weights.dtype} == {torch.float64}
    assert moved.labels.dtype == torch.int64
    codes = dataclasses.replace(rows, y=rows.labels).to(torch.device("cpu"), torch.float64)
    assert codes.y.dtype == torch.int64
    assert len(Rows(rows.x, rows.y)[index]) == 3


def test_a_net_is_an_encoder_and_a_head():
    both = Net(nn.Linear(3, 2), nn.Linear(2, 1))
    x = torch.randn(4, 3, generator=generator())
    z, prediction = both(x)
    assert torch.equal(z, both.encoder(x))
    assert torch.equal(prediction, both.head(z))
    assert not identical(both, copy.deepcopy(Net(nn.Linear(3, 2), nn.Linear(2, 1))))
