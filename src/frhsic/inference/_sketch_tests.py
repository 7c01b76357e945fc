"""The test of independence of all rows of a sketch."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Label, check_kept
from frhsic.dependence import HSIC
from frhsic.inference._bootstrap import wild_values
from frhsic.inference._embedding import by_chance
from frhsic.inference._gamma import gamma_tail
from frhsic.inference._pairings import LARGEST, Pairing, PairingSide
from frhsic.inference._permutation import rank_pvalue
from frhsic.inference._results import TestResult
from frhsic.inference._sketch_intervals import CONSTANT, block_debiased
from frhsic.inference._strata import MIN_LABEL_ROWS, Stratum
from frhsic.sketching import HSICSketch

# Numbers held at once, and the most rows of which some are permuted one by one.
_CHUNK, _MOST_ROWS = 20_000_000, 20_000_000


class _Law(NamedTuple):
    """HSIC of a sketch, and its law under independence."""

    statistic: float
    mean: float  # of the biased form
    variance: float
    draws: Tensor  # of the debiased form
    ranked: float  # what the draws are compared with: the statistic, or the biased form less its mean
    notes: tuple[str, ...] = ()


def sketch_test(
    sketch: HSICSketch, given: object, method: str, n_permutations: int, generator: torch.Generator
) -> TestResult:
    """Return the test of independence of all rows of a sketch, or within labels of it.

    The permutation law of the debiased HSIC tends to sum_jk lambda_j mu_k (chi_jk^2 - 1) / n, with lambda and
    mu the eigenvalues of the covariances of the features of z and of s. With weights it is that of a wild
    bootstrap of the stored rows. Within labels the statistic is the mean over them, by their mass. Where the
    condition of :mod:`frhsic.inference._pairings` does not hold, rows with large features are permuted. Of
    rows in groups the groups of the sketch have random signs.
    """
    weighted = sketch.feature_sums().weighted
    if method == "gamma" and (weighted or sketch.grouped):
        rows, units = ("weighted", "equal weights") if weighted else ("groups of", "independent rows")
        must = f"be 'permutation' for a sketch of {rows} rows: the moments of 'gamma' are for {units}"
        raise ArgumentError("method", must, "'gamma'", "Leave it out.")
    parts = [sketch] if given is None else _parts_by_label(sketch, given)
    mass = [float(part.feature_sums().moments().first[0, 0]) for part in parts]
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
        notes.append(f"{CONSTANT}.")
    return TestResult(
        statistic=statistic,
        pvalue=pvalue,
        method="cluster bootstrap" if sketch.grouped else "wild bootstrap" if weighted else method,
        measure="HSIC",
        attributes=sketch.stored.s.names,
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
    lam, mu = sketch.feature_sums().spectra()
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
        if pairing is not None:
            parts = draws.split(max(1, _CHUNK // pairing.cost))
            sums = [pairing.draw(len(part), generator)[0].square().sum(dim=(1, 2)) for part in parts]
            draws = torch.cat(sums) / pairing.z.n**2 - mean
            return _Law(sketch.value(), mean, 0.0, draws, sketch.value(estimator="biased") - mean, notes)
        draws = by_chance(lam, mu, n_permutations, generator) / rows
    value = sketch.value()
    return _Law(value, mean, 2.0 * float((lam @ lam) * (mu @ mu)) / rows**2, draws, value, notes)


def _large_rows(sketch: HSICSketch) -> tuple[Pairing | None, tuple[str, ...]]:
    """Return the pairing of rows of which some are too large for the limit, or None if there are none.

    The rows of each side are those of its categories or of its grid, which hold the mass of all rows, or else
    the stored ones, each for as many rows as it was drawn from.
    """
    sums, n = sketch.feature_sums(), sketch.n_rows
    sides, sizes, bounds, whole = [], [], [], True
    for atoms in (sums.z, sums.s):
        features, mass = atoms.features()
        share = mass / mass.sum()
        mean = share @ features
        G = features - mean
        gram = n * (share[:, None] * G).mT @ G
        norms = G.square().sum(dim=1)
        scale = max(float(torch.linalg.matrix_norm(gram)) / n, 1e-300)
        sizes.append(float(norms.max()) / scale)
        most = math.inf if atoms.diagonal is None else (math.sqrt(atoms.diagonal) + float(mean.norm())) ** 2
        bounds.append(sizes[-1] if atoms.whole else most / scale)
        sides.append((G, share, gram, norms))
        whole = whole and atoms.whole
    if bounds[0] * bounds[1] <= LARGEST * n:
        return None, ()
    if sizes[0] * sizes[1] <= LARGEST * n:
        return None, ("That no row is too large for the limit is judged by the stored rows.",)
    if n > _MOST_ROWS:
        note = f"A few rows make up most of what chance adds; above {_MOST_ROWS:,} rows the limit is used."
        return None, (note,)

    def side(G: Tensor, share: Tensor, gram: Tensor, norms: Tensor) -> PairingSide:
        edges = (share.cumsum(0) * n).round().long()
        place = torch.searchsorted(edges, torch.arange(n), right=True).clamp_max(len(G) - 1)
        return PairingSide(n, (G.shape[1],), gram, norms[place][None], lambda rows: G[place[rows]])

    stored = "" if whole else ", as they are among the stored rows"
    note = f"Rows too few and too far out for the limit are permuted{stored}."
    return Pairing(side(*sides[0]), side(*sides[1])), (note,)


def _grouped_laws(parts: list[HSICSketch], n_permutations: int, generator: torch.Generator) -> list[_Law]:
    """Return the laws of sketches of groups of rows: a random sign for each group, the same in all labels."""
    n_groups = parts[0].n_groups
    signs = torch.randint(2, (n_permutations, n_groups), generator=generator).double().mul_(2.0).sub_(1.0)
    laws = []
    for part in parts:
        terms, shares = part.feature_sums().group_terms()
        q = float(shares.square().sum())
        A = terms.flatten(1)
        gram = A @ A.mT
        inside = float(gram.diagonal().sum()) / (1.0 - q)
        draws = ((signs @ gram) * signs).sum(dim=1) / (1.0 - q) - inside
        biased = float(gram.sum())
        laws.append(_Law(block_debiased(biased, gram, q), inside, 0.0, draws, biased - inside))
    return laws


def _parts_by_label(sketch: HSICSketch, given: object) -> list[HSICSketch]:
    """Return the sketches of labels with enough rows to be tested."""
    labels = list(given) if isinstance(given, list | tuple) else [given]
    unknown = [label for label in labels if label not in sketch.labels]
    if unknown or not labels:
        must = f"be labels of the sketch: {list(sketch.labels)[:5]}"
        fix = "Pass sketch.labels to test within all of them."
        raise ArgumentError("given", must, repr(unknown[0] if unknown else "none"), fix)
    parts = [sketch.at(cast(Label, label)) for label in labels]
    enough = [part for part in parts if part.effective_rows >= MIN_LABEL_ROWS]
    if not enough:
        must = f"have a label with at least {MIN_LABEL_ROWS} rows"
        raise ArgumentError("given", must, "none", "Add rows, or merge labels.")
    kept, total = (sum(part.n_rows for part in some) for some in (enough, parts))
    check_kept(kept, total, n_labels=len(parts), min_rows=MIN_LABEL_ROWS)
    return enough
