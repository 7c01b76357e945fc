"""The adversary's value against the same network written in numpy."""

import math

import numpy as np
import pytest
import torch

from frhsic.dependence import Adversary

# Klambauer et al. (2017).
SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772


def selu(x):
    return SCALE * np.where(x > 0, x, ALPHA * (np.exp(np.minimum(x, 0)) - 1))


def network(adversary, x):
    layers = [
        (w.detach().numpy(), b.detach().numpy())
        for w, b in zip(adversary.weights, adversary.biases, strict=True)
    ]
    for weight, bias in layers[:-1]:
        x = selu(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def sample(n=20, q=1):
    generator = torch.Generator().manual_seed(0)
    s = torch.randn(n, q, dtype=torch.float64, generator=generator)
    z = torch.randn(n, 3, dtype=torch.float64, generator=generator)
    w = 0.1 + torch.rand(n, dtype=torch.float64, generator=generator)
    return z, s, w


@pytest.mark.parametrize("hidden", [(), (6,), (5, 4)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [1, 2])
def test_regression_adversary_is_variance_less_squared_error(q, weighted, hidden):
    z, s, w = sample(q=q)
    adversary = Adversary(hidden).calibrate(z, s, torch.Generator().manual_seed(1))
    p = w.numpy() / w.sum().item() if weighted else np.full(20, 1 / 20)
    guess, truth = network(adversary, z.numpy()), s.numpy()
    expected = 0.0
    for j in range(q):
        mean = p @ truth[:, j]
        expected += sum(
            p[i] * ((truth[i, j] - mean) ** 2 - (guess[i, j] - truth[i, j]) ** 2) for i in range(20)
        )
    assert adversary(z, s, w if weighted else None).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_bins", [2, 4])
def test_binned_adversary_is_entropy_less_cross_entropy(n_bins, weighted):
    z, s, w = sample()
    adversary = Adversary((6,), n_bins=n_bins).calibrate(z, s, torch.Generator().manual_seed(2))
    p = w.numpy() / w.sum().item() if weighted else np.full(20, 1 / 20)
    t = s.numpy()[:, 0]
    bin_of = np.digitize(t, np.quantile(t, np.linspace(0, 1, n_bins + 1))[1:-1])
    logits = network(adversary, z.numpy())
    shares = [p[bin_of == b].sum() for b in range(n_bins)]
    expected = -sum(share * math.log(share) for share in shares)
    for i in range(20):
        log_partition = math.log(sum(math.exp(v) for v in logits[i]))
        expected += p[i] * (logits[i, bin_of[i]] - log_partition)
    assert adversary(z, s, w if weighted else None).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n_bins", [None, 4])
def test_adversary_that_knows_nothing_scores_zero(n_bins):
    z, s, w = sample()
    adversary = Adversary((), n_bins=n_bins).calibrate(z, s, torch.Generator().manual_seed(3))
    p = w / w.sum()
    edges = torch.quantile(s[:, 0], torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    shares = torch.bincount(torch.bucketize(s[:, 0].contiguous(), edges, right=True), p)
    with torch.no_grad():
        adversary.weights[0].zero_()
        adversary.biases[0].copy_((p @ s)[None] if n_bins is None else shares.log()[None])
    assert adversary(z, s, w).item() == pytest.approx(0, abs=1e-12)


def test_layers_start_uniform_within_one_over_the_root_of_the_inputs():
    z, s, _ = sample()
    adversary = Adversary((400,)).calibrate(z, s, torch.Generator().manual_seed(4))
    for parameter, fan_in in zip((*adversary.weights, *adversary.biases), (3, 400, 3, 400), strict=True):
        reach = 1 / math.sqrt(fan_in)
        assert parameter.abs().max() <= reach
        if parameter.numel() > 300:
            # A uniform law within +-reach has standard deviation reach / sqrt(3).
            assert parameter.std().item() == pytest.approx(reach / math.sqrt(3), rel=0.1)
