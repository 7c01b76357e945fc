"""Inference from a sketch: what its sums, its groups of rows and its stored rows say about all rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from scipy.special import stdtrit
from torch import Tensor

from frhsic._text import number
from frhsic.data import Label, check_kept
from frhsic.dependence import HSIC
from frhsic.inference._embedding import by_chance
from frhsic.inference._gamma import gamma_tail
from frhsic.inference._pairings import LARGEST, Pairing, Side
from frhsic.inference._permutation import MIN_LEVEL, Stratum, rank_pvalue, wild_values
from frhsic.inference._results import Interval, TestResult
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._products import hsic_of_sums
from frhsic.sketching import HSICSketch

# Zero must lie beyond so many times the quantile of the error before Student's law is used, as for rows.
_MARGIN = 1.5
# Numbers held at once, and the most rows of which some are permuted one by one.
_CHUNK, _MOST_ROWS = 20_000_000, 20_000_000
# Draws of what chance alone gives.
_DRAWS = 199
_CONSTANT = (
    "One side is constant, or varies by less than features of this bandwidth and dtype resolve (float64 and "
    "a smaller bandwidth resolve more)"
)


def refuse_beside_a_sketch(**arguments: object) -> None:
    """Refuse what a sketch already holds."""
    for name, given in arguments.items():
        if given is not None:
            raise ValueError(
                f"'{name}' must be left out beside a sketch, which holds rows, weights and kernels. "
                f"Got {type(given).__name__}. Pass the sketch alone; sketch.at(label) is that of one label."
            )


def refuse_grouped(sketch: HSICSketch, what: str) -> None:
    """Raise ValueError if the rows of a sketch come in groups, for which it has no error of a mean."""
    if sketch.grouped:
        raise ValueError(
            f"'z' must be a sketch without groups of rows for {what}. Got one with groups. "
            "Pass the rows and 'groups'."
        )


class _Law(NamedTuple):
    """HSIC of a sketch, and what chance alone gives."""

    statistic: float
    mean: float  # of the biased form
    variance: float
    draws: Tensor  # of the debiased form
    ranked: float  # what the draws are compared with: the statistic, or the biased form less its mean
    notes: tuple[str, ...] = ()


def sketched_test(
    sketch: HSICSketch, given: object, method: str, n_permutations: int, generator: torch.Generator
) -> TestResult:
    """Return the test of independence of all rows of a sketch, or within labels of it.

    The permutation law of the debiased HSIC tends to sum_jk lambda_j mu_k (chi_jk^2 - 1) / n, with lambda and
    mu the eigenvalues of the covariances of the features of z and of s. With weights it is that of a wild
    bootstrap of the stored rows. Within labels the statistic is the mean over them, by their mass. Where the
    condition of :mod:`frhsic.inference._pairings` does not hold, rows with large features are permuted. Of
    rows in groups the groups of the sketch have random signs.
    """
    state = sketch._state()
    weighted = len(state.sums) == 2
    if weighted and method == "gamma":
        raise ValueError(
            "'method' must be 'permutation' for a sketch of weighted rows: the moments of 'gamma' are for "
            "equal weights. Got 'gamma'. Leave it out."
        )
    if sketch.grouped and method == "gamma":
        raise ValueError(
            "'method' must be 'permutation' for a sketch of groups of rows: the moments of 'gamma' are for "
            "independent rows. Got 'gamma'. Leave it out."
        )
    parts = [sketch] if given is None else _labelled(sketch, given)
    mass = [float(part._state().moments().first[0, 0]) for part in parts]
    shares = [one / sum(mass) for one in mass]
    if sketch.grouped:
        laws = _grouped_laws(parts, n_permutations, generator)
    else:
        laws = [_law(part, method, n_permutations, generator, weighted=weighted) for part in parts]
    pairs = list(zip(shares, laws, strict=True))
    statistic = math.fsum(share * law.statistic for share, law in pairs)
    mean = math.fsum(share * law.mean for share, law in pairs)
    draws = torch.stack([share * law.draws for share, law in pairs]).sum(dim=0)
    if mean == 0.0:
        pvalue, draws = 1.0, draws[:0]
    elif method == "gamma":
        variance = math.fsum(share**2 * law.variance for share, law in pairs)
        pvalue = gamma_tail(statistic + mean, mean, variance)
    else:
        ranked = math.fsum(share * law.ranked for share, law in pairs)
        # Sums of a sketch may be of float32: what is equal in exact arithmetic is apart by its digits.
        slack = 1e-5 * (abs(ranked) + mean) if any(law.notes for law in laws) else 0.0
        pvalue = rank_pvalue(torch.cat((draws.new_tensor([ranked - slack]), draws)))
    limit = f"that of {sum(len(part.stored.z) for part in parts):,} stored rows, scaled to all"
    if sketch.grouped:
        limit = f"that of random signs of {sketch.n_groups} groups, which hold all rows of a unit"
    elif not weighted:
        limit = "its limit for many rows"
    notes = [f"From a sketch: the null law is {limit}.", *dict.fromkeys(x for law in laws for x in law.notes)]
    if mean == 0.0:
        notes.append(f"{_CONSTANT}.")
    return TestResult(
        statistic=statistic,
        pvalue=pvalue,
        method="cluster bootstrap" if sketch.grouped else "wild bootstrap" if weighted else method,
        measure="HSIC",
        attributes=state.plan.names,
        n=sum(part.n_rows for part in parts),
        exact=False,
        n_permutations=len(draws) or None,
        notes=tuple(notes),
        null=tuple(draws.tolist()),
    )


def _law(
    sketch: HSICSketch, method: str, n_permutations: int, generator: torch.Generator, *, weighted: bool
) -> _Law:
    rows = sketch.effective_rows
    lam, mu = sketch._state().spectra()
    mean = float(lam.sum() * mu.sum()) / rows
    notes: tuple[str, ...] = ()
    draws = torch.zeros(0 if method == "gamma" else n_permutations, dtype=torch.float64)
    if method == "permutation" and weighted:
        z, s, w = sketch.stored
        stored, measure = Stratum(z, s, w, 1.0), HSIC(sketch.kernel_z, sketch.kernel_s)
        draws = wild_values([measure], [stored], n_permutations, generator)[0, 1:]
        draws = (draws - draws.mean()) * float(w.sum().square() / w.square().sum()) / rows
    elif method == "permutation" and mean > 0.0:
        pairing, notes = _large_rows(sketch)
        draws = draws if pairing is not None else by_chance(lam, mu, n_permutations, generator) / rows
        if pairing is not None:
            n = pairing.z.n
            step = max(1, _CHUNK // pairing.cost)
            counts = [min(step, n_permutations - start) for start in range(0, n_permutations, step)]
            sums = [pairing.draw(count, generator)[0].square().sum(dim=(1, 2)) for count in counts]
            draws = torch.cat(sums) / n**2 - mean
            return _Law(sketch.value(), mean, 0.0, draws, sketch.value(estimator="biased") - mean, notes)
    value = sketch.value()
    return _Law(value, mean, 2.0 * float((lam @ lam) * (mu @ mu)) / rows**2, draws, value, notes)


def _large_rows(sketch: HSICSketch) -> tuple[Pairing | None, tuple[str, ...]]:
    """Return the pairing of rows of which some are too large for the limit, or None if there are none.

    The rows of each side are those of its levels or of its grid, which hold the mass of all rows, or else the
    stored ones, each for as many rows as it was drawn from.
    """
    state, n = sketch._state(), sketch.n_rows
    diagonals = state.plan.map_z.diagonal, state.diagonal_s
    sides, sizes, bounds, whole = [], [], [], True
    for (features, mass, all_rows), diagonal in zip(
        (state.atoms_z(), state.atoms_s()), diagonals, strict=True
    ):
        share = mass / mass.sum()
        mean = share @ features
        G = features - mean
        gram = n * (share[:, None] * G).mT @ G
        norms = G.square().sum(dim=1)
        scale = max(float(torch.linalg.matrix_norm(gram)) / n, 1e-300)
        sizes.append(float(norms.max()) / scale)
        most = math.inf if diagonal is None else (math.sqrt(diagonal) + float(mean.norm())) ** 2
        bounds.append(sizes[-1] if all_rows else most / scale)
        sides.append((G, share, gram, norms))
        whole = whole and all_rows
    if bounds[0] * bounds[1] <= LARGEST * n:
        return None, ()
    if sizes[0] * sizes[1] <= LARGEST * n:
        return None, ("That no row is too large for the limit is judged by the stored rows.",)
    if n > _MOST_ROWS:
        note = f"A few rows make up most of what chance adds; above {_MOST_ROWS:,} rows the limit is used."
        return None, (note,)
    made = []
    for G, share, gram, norms in sides:
        edges = (share.cumsum(0) * n).round().long()
        place = torch.searchsorted(edges, torch.arange(n), right=True).clamp_max(len(G) - 1)
        made.append(Side(n, (G.shape[1],), gram, norms[place][None], _rows_of(G, place)))
    note = "Rows too few and too far out for the limit are permuted" + (
        "." if whole else ", as they are among the stored rows."
    )
    return Pairing(made[0], made[1]), (note,)


def _rows_of(G: Tensor, place: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda rows: G[place[rows]]


def _grouped_laws(parts: list[HSICSketch], n_permutations: int, generator: torch.Generator) -> list[_Law]:
    """Return the laws of sketches of groups of rows: a random sign for each group, the same in all labels."""
    n_groups = parts[0].n_groups
    signs = torch.randint(2, (n_permutations, n_groups), generator=generator).double().mul_(2.0).sub_(1.0)
    laws = []
    for part in parts:
        terms, shares = part._state().group_terms()
        q = float(shares.square().sum())
        A = terms.flatten(1)
        gram = A @ A.mT
        inside = float(gram.diagonal().sum()) / (1.0 - q)
        draws = ((signs @ gram) * signs).sum(dim=1) / (1.0 - q) - inside
        biased = float(gram.sum())
        laws.append(_Law(block_debiased(biased, gram, q), inside, 0.0, draws, biased - inside))
    return laws


def block_debiased(biased: float, gram: Tensor, q: float) -> float:
    """Return HSIC without the pairs of rows of one group, as in :mod:`frhsic.inference._embedding`."""
    return (biased * (1.0 - q) - float(gram.diagonal().sum())) / (1.0 - 2.0 * q)


def _labelled(sketch: HSICSketch, given: object) -> list[HSICSketch]:
    """Return the sketches of labels with enough rows to be tested."""
    labels = list(given) if isinstance(given, list | tuple) else [given]
    unknown = [label for label in labels if label not in sketch.labels]
    if unknown or not labels:
        raise ValueError(
            f"'given' must be labels of the sketch: {list(sketch.labels)[:5]}. "
            f"Got {unknown[0] if unknown else 'none'!r}. Pass sketch.labels to test within all of them."
        )
    parts = [sketch.at(cast(Label, label)) for label in labels]
    enough = [part for part in parts if part.effective_rows >= MIN_LEVEL]
    if not enough:
        raise ValueError(
            f"'given' must have a label with at least {MIN_LEVEL} rows. Got none. Add rows, or merge labels."
        )
    kept, total = (sum(part.n_rows for part in some) for some in (enough, parts))
    check_kept(kept, total, n_labels=len(parts), min_rows=MIN_LEVEL)
    return enough


def sketched_interval(
    sketch: HSICSketch,
    measure: HSIC,
    confidence_level: float,
    n_draws: int,
    generator: torch.Generator,
    chance: bool,
) -> Interval:
    """Return the interval for HSIC of the kernels of a sketch.

    The estimate is that of all rows, less the error of the features on the stored rows. Its standard error is
    that of the jackknife over groups together with that of the error. Far from independence Student's law on
    the root; near it a bound from zero to (|C^| + r)^2, where |C^ - C|^2 has the mean by which the biased
    HSIC exceeds the debiased one, and the law of a sum over products of eigenvalues.
    """
    state, normalized = sketch._state(), measure.normalized
    shares = sketch.group_shares
    if bool((shares == 0).any()) or sketch.effective_rows < 2 * sketch.n_groups:
        raise ValueError(
            f"'z' must be a sketch with rows in each of its {sketch.n_groups} groups, two on average. "
            f"Got {sketch.n_rows:,} rows. Add rows, or pass the rows themselves."
        )
    lam, mu = state.spectra()
    if float(lam.sum() * mu.sum()) == 0.0:
        raise ValueError(f"'z' must be a sketch of what varies. Got one of which this holds: {_CONSTANT}.")
    size = 1.0
    if normalized:
        zz, ss = (float(hsic_of_sums(*one, "unbiased")) for one in (state.moments_z(), state.moments_s()))
        size = math.sqrt(max(zz * ss, 1e-300))
    biased, plain = sketch.value(estimator="biased"), sketch.value()
    spread = max(biased - plain, 0.0)
    if sketch.grouped:
        terms, blocks = state.group_terms()
        A, q = terms.flatten(1), float(blocks.square().sum())
        plain = block_debiased(biased, A @ A.mT, q)
        spread = float(A.square().sum()) / (1.0 - q)
    error = sketch.error(normalized=normalized)
    without = [sketch.without(group).value(normalized=normalized) for group in range(sketch.n_groups)]
    estimate = plain / size - error.error
    se = math.hypot(jackknife_error(plain / size, without, shares), error.standard_error)
    t = float(stdtrit(sketch.n_groups - 1, 0.5 + 0.5 * confidence_level))
    # Squared lengths of C^ - C, of mean one and then of the mean that the two forms of HSIC differ by.
    errors = 1.0 + by_chance(lam / lam.sum(), mu / mu.sum(), n_draws, generator)
    errors = (errors.clamp_min(0.0) * spread).sqrt()
    if sketch.grouped:  # the mean is estimated from the groups themselves
        freedom = sketch.n_groups - 1
        chi = torch.randn((n_draws, freedom), generator=generator, dtype=torch.float64).square().mean(dim=1)
        errors = errors / chi.sqrt()
    length, radius, wide = (
        math.sqrt(biased),
        *(float(errors.quantile(q)) for q in (confidence_level, max(confidence_level, 0.95))),
    )
    if estimate > 0.0 and length > _MARGIN * wide:
        method = f"jackknife over {sketch.n_groups} groups of rows, on the root of the unbiased form"
        middle = math.sqrt(estimate)
        half = t * se / (2.0 * middle)
        low, high = max(0.0, middle - half) ** 2, (middle + half) ** 2
    else:
        method = "bound by the spectrum of the features: near independence"
        low = min(0.0, estimate)
        high = (length + radius) ** 2 / size + max(0.0, t * error.standard_error - error.error)
    if normalized:
        high = min(high, 1.0)
    low, high = min(low, estimate), max(high, estimate)
    mean = top = None
    if chance:
        values = by_chance(lam, mu, _DRAWS, generator) / (sketch.effective_rows * size)
        if sketch.grouped:  # as much more as groups differ more than rows would
            values *= spread * sketch.effective_rows / float(lam.sum() * mu.sum())
        values = signed_root(values) if measure.root else values
        mean, top = float(values.mean()), float(values.quantile(confidence_level))
    notes = [
        f"The features are off by {number(error.error)} on {error.rows:,} stored rows (standard error "
        f"{number(error.standard_error)}): this is taken off the estimate, and its error is in the interval."
    ]
    if measure.root:
        low, estimate, high = (math.copysign(math.sqrt(abs(x)), x) for x in (low, estimate, high))
    if low < 0.0:
        notes.append("Below zero is no value of the target: the estimate is unbiased, so it may lie there.")
    name = "normalised HSIC" if normalized else "HSIC"
    return Interval(
        estimate=estimate,
        low=low,
        high=high,
        confidence_level=confidence_level,
        measure=f"root of {name}" if measure.root else name,
        target="the population's value under the kernels of the sketch",
        method=method,
        attributes=state.plan.names,
        n=sketch.n_rows,
        chance=mean,
        chance_high=top,
        notes=tuple(notes),
    )


def jackknife_error(value: float, without: list[float], shares: Tensor) -> float:
    """Return the standard error of a value from those without each group, of shares of any size.

    With h_g = 1 / share_g and p_g = h_g value - (h_g - 1) without_g, the root of the mean over groups of
    (p_g - mean)^2 / (h_g - 1): Busing, Meijer and van der Leeden (1999).
    """
    h = 1.0 / shares
    pseudo = h * value - (h - 1.0) * torch.tensor(without, dtype=torch.float64)
    return math.sqrt(float(((pseudo - pseudo.mean()).square() / (h - 1.0)).mean()))
