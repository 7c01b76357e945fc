"""Penalties, and the calibration of one side, against loops over rows, levels and columns."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch

import frhsic.dependence
from frhsic import kernels
from frhsic.data import Sensitive, to_sensitive
from frhsic.dependence import (
    EIPM,
    GDP,
    HSIC,
    Adversary,
    BinnedMMD,
    Dependence,
    DistanceCovariance,
    KernelHGR,
    MutualInformation,
    RankGap,
    RecoveredVariance,
    ScoreGap,
)
from frhsic.kernels import Energy, Gaussian, Laplace, Linear
from frhsic.penalty import MIN_ROWS, Penalty, PenaltySum
from frhsic.sketching import FeatureHSIC

CLOSE = {"rel": 1e-10, "abs": 1e-14}
NAMES, KINDS = ("age", "income", "sex"), ("continuous", "continuous", "categorical")
ALL_ROWS = range(48)


def sample(n=48, lead=(), seed=0):
    """z ``(..., n, 3)``, a prediction ``(..., n, 1)``, three sensitive columns, y with three levels, weights.

    Every fourth weight is zero; the levels have some 24, 16 and 8 rows.
    """
    g = torch.Generator().manual_seed(seed)
    age, income = torch.randn(2, n, dtype=torch.float64, generator=g)
    sex = (torch.rand(n, dtype=torch.float64, generator=g) > 0.5).double()
    s = Sensitive(torch.stack([age, income, sex], dim=1), NAMES, KINDS)
    z = torch.randn(*lead, n, 3, dtype=torch.float64, generator=g)
    z[..., 0] += age * (1.0 + sex)
    z[..., 1] += income
    y = torch.tensor([0, 0, 0, 1, 1, 2], dtype=torch.float64).repeat(n // 6)
    w = 0.1 + torch.rand(n, dtype=torch.float64, generator=g)
    w[::4] = 0.0
    return z, z.sum(dim=-1, keepdim=True).tanh(), s, y, w


def rows_of(y, level):
    return [i for i in range(len(y)) if y[i] == level]


def median_distance(x):
    n = len(x)
    r = sorted(float(np.linalg.norm(x[i] - x[j])) for i in range(n) for j in range(i + 1, n))
    return r[(len(r) - 1) // 2]


def gaussian_gram(x, sigma):
    n = len(x)
    K = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            K[i, j] = math.exp(-float(((x[i] - x[j]) ** 2).sum()) / (2 * sigma**2))
    return K


def naive_hsic(z, s, columns, rows, weights=None, sigma_z=None, sigma_s=None):
    """HSIC of some rows of z and some columns of S, by loops; no bandwidth is the median on these rows.

    The kernel on S is the product over the columns: a Gaussian for numbers, equality for categories.
    """
    rows = [i for i in rows if weights is None or weights[i] > 0]
    p = np.array([1.0 if weights is None else float(weights[i]) for i in rows])
    p = p / p.sum()
    x = z.detach().numpy()[rows]
    K = gaussian_gram(x, sigma_z or median_distance(x))
    L = np.ones_like(K)
    for name in columns:
        column = s.values[:, s.names.index(name)].numpy()[rows][:, None]
        if s.kinds[s.names.index(name)] == "categorical":
            L = L * (column == column.T)
        else:
            L = L * gaussian_gram(column, (sigma_s or {}).get(name) or median_distance(column))
    total = 0.0
    K = K - (K @ p)[:, None] - (p @ K)[None] + p @ K @ p
    L = L - (L @ p)[:, None] - (p @ L)[None] + p @ L @ p
    for i in range(len(rows)):
        for j in range(len(rows)):
            total += p[i] * p[j] * K[i, j] * L[i, j]
    return total


# -- the notions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_demographic_parity_is_the_hsic_of_all_rows_and_all_columns_by_a_product_kernel(weighted):
    z, prediction, s, y, w = sample()
    w = w if weighted else None
    actual = Penalty(HSIC())(z, prediction, s, y, w).item()
    assert actual == pytest.approx(naive_hsic(z, s, NAMES, ALL_ROWS, w), **CLOSE)
    # y is not looked at, and need not be there.
    assert Penalty(HSIC())(z, None, s, None, w).item() == actual


def test_equal_opportunity_is_the_trace_formula_of_the_paper_on_the_rows_with_y_1():
    z, _, s, y, _ = sample()
    age = s.columns(["age"])
    rows = rows_of(y, 1)
    n1 = len(rows)
    K1 = gaussian_gram(z.numpy()[rows], 0.9)
    L1 = gaussian_gram(age.values.numpy()[rows], 0.7)
    H1 = np.eye(n1) - np.ones((n1, n1)) / n1
    expected = np.trace(K1 @ H1 @ L1 @ H1) / n1**2
    penalty = Penalty(HSIC(Gaussian(0.9), Gaussian(0.7)), given={"y": 1})
    assert penalty(z, None, age, y).item() == pytest.approx(expected, **CLOSE)
    # What the other rows are does not matter.
    others = torch.ones(48, dtype=torch.bool)
    others[rows] = False
    moved = Sensitive(torch.where(others[:, None], 9.0, age.values), age.names, age.kinds)
    assert penalty(torch.where(others[:, None], -3.0, z), None, moved, y).item() == pytest.approx(
        expected, **CLOSE
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("levels", [(0, 1), (1,), (1, 0)])
def test_equalized_odds_is_the_mean_over_levels_of_the_hsic_within_the_level(levels, weighted):
    z, prediction, s, y, w = sample(66)
    w = w if weighted else None
    expected = np.mean([naive_hsic(z, s, NAMES, rows_of(y, level), w) for level in levels])
    labels = levels[0] if len(levels) == 1 else list(levels)
    actual = Penalty(HSIC(), given={"y": labels})(z, prediction, s, y, w)
    assert actual.item() == pytest.approx(expected, **CLOSE)


def test_given_y_takes_every_level_of_y():
    z, _, s, y, _ = sample(66)
    expected = np.mean([naive_hsic(z, s, NAMES, rows_of(y, level)) for level in (0, 1, 2)])
    assert Penalty(HSIC(), given="y")(z, None, s, y).item() == pytest.approx(expected, **CLOSE)
    # Levels count alike, whatever their number of rows, and the whole is none of them.
    assert abs(expected - naive_hsic(z, s, NAMES, range(66))) > 1e-4


@pytest.mark.parametrize("as_written", [float, int, bool])
def test_labels_of_y_may_be_of_any_type_of_number(as_written):
    z, _, s, y, _ = sample()
    binary = (y == 1).double()
    expected = naive_hsic(z, s, NAMES, rows_of(y, 1))
    dtype = {float: torch.float32, int: torch.int64, bool: torch.bool}[as_written]
    penalty = Penalty(HSIC(), given={"y": as_written(1)})
    assert penalty(z, None, s, binary.to(dtype)).item() == pytest.approx(expected, **CLOSE)


# -- several columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("columns", "sets"),
    [
        (None, [("age", "income", "sex")]),
        (["age"], [("age",)]),
        (["sex", "age"], [("sex",), ("age",)]),
        (["age", "income", "sex"], [("age",), ("income",), ("sex",)]),
        ([("age", "income")], [("age", "income")]),
        ([("age", "income"), "sex"], [("age", "income"), ("sex",)]),
        ([("sex", "age"), ("income", "age")], [("sex", "age"), ("income", "age")]),
    ],
    ids=str,
)
def test_columns_are_summed_and_tuples_of_columns_are_joint(columns, sets, weighted):
    z, prediction, s, y, w = sample()
    w = w if weighted else None
    expected = [naive_hsic(z, s, names, ALL_ROWS, w) for names in sets]
    value = Penalty(HSIC(), columns=columns).evaluate(z, prediction, s, y, w)
    assert value.total.item() == pytest.approx(sum(expected), **CLOSE)
    assert [v.item() for v in value.values] == pytest.approx(expected, **CLOSE)


def test_columns_within_levels_are_the_sum_over_columns_of_the_mean_over_levels():
    z, _, s, y, w = sample(66)
    sets = [("age", "sex"), ("income",)]
    expected = sum(
        np.mean([naive_hsic(z, s, names, rows_of(y, level), w) for level in (0, 1)]) for names in sets
    )
    penalty = Penalty(HSIC(), given={"y": [0, 1]}, columns=[("age", "sex"), "income"])
    assert penalty(z, None, s, y, w).item() == pytest.approx(expected, **CLOSE)


def test_columns_of_a_plain_tensor_have_the_names_of_the_door():
    z, _, s, _, _ = sample()
    plain = s.values[:, :2]
    assert to_sensitive(plain).names == ("s0", "s1")
    expected = naive_hsic(z, s, ["age"], ALL_ROWS) + naive_hsic(z, s, ["income"], ALL_ROWS)
    assert Penalty(HSIC(), columns=["s0", "s1"])(z, None, plain).item() == pytest.approx(expected, **CLOSE)
    one = Penalty(HSIC(), columns=["s"])(z, None, plain[:, 0])
    assert one.item() == pytest.approx(naive_hsic(z, s, ["age"], ALL_ROWS), **CLOSE)


# -- weights, sums, predictions, stacks ----------------------------------------------------------------


def test_only_the_ratios_of_weights_matter():
    z, prediction, s, y, w = sample(66)
    for given in (None, {"y": [0, 1]}):
        penalty = Penalty(HSIC(), given=given, columns=["age", "sex"])
        one, other = (penalty(z, prediction, s, y, factor * w).item() for factor in (1.0, 7.0))
        assert one == pytest.approx(other, **CLOSE)
        assert abs(one - penalty(z, prediction, s, y).item()) > 1e-4


def test_penalties_add_up_and_scale():
    z, prediction, s, y, w = sample()
    a = naive_hsic(z, s, ["age"], ALL_ROWS, w)
    b = naive_hsic(prediction, s, ["income"], ALL_ROWS, w)
    c = naive_hsic(z, s, ["sex"], rows_of(y, 0), w)
    terms = (
        Penalty(HSIC(), columns=["age"]),
        Penalty(HSIC(), on="prediction", columns=["income"]),
        Penalty(HSIC(), given={"y": 0}, columns=["sex"]),
    )

    def value(penalty):
        return penalty(z, prediction, s, y, w).item()

    assert value(terms[0] + 0.5 * terms[1] + terms[2] * 3) == pytest.approx(a + 0.5 * b + 3 * c, **CLOSE)
    assert value(2.0 * (terms[0] + 0.25 * terms[1])) == pytest.approx(2 * a + 0.5 * b, **CLOSE)
    assert value(terms[0] + (terms[1] + terms[2])) == pytest.approx(a + b + c, **CLOSE)
    assert value(terms[0] + terms[0]) == pytest.approx(2 * a, **CLOSE)
    assert value(0 * terms[0] + terms[1]) == pytest.approx(b, **CLOSE)
    assert value(np.float64(0.5) * terms[0]) == pytest.approx(0.5 * a, **CLOSE)
    # What a term is stands beside what it contributes.
    told = (terms[0] + 0.5 * terms[1]).evaluate(z, prediction, s, y, w)
    assert [v.item() for v in told.values] == pytest.approx([a, b], **CLOSE)


def test_on_prediction_looks_at_the_prediction_only():
    z, prediction, s, _, _ = sample()
    penalty = Penalty(HSIC(), on="prediction")
    expected = naive_hsic(prediction, s, NAMES, ALL_ROWS)
    assert penalty(None, prediction, s).item() == pytest.approx(expected, **CLOSE)
    assert penalty(z, prediction[:, 0], s).item() == pytest.approx(expected, **CLOSE)
    several = torch.cat([prediction, z], dim=1)
    assert penalty(None, several, s).item() == pytest.approx(naive_hsic(several, s, NAMES, ALL_ROWS), **CLOSE)


@pytest.mark.parametrize("lead", [(4,), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_stack_of_models_gives_each_its_own_penalty(lead, weighted):
    z, prediction, s, y, w = sample(66, lead)
    w = w if weighted else None
    penalty = (
        Penalty(HSIC(), columns=["age", "sex"])
        + 0.5 * Penalty(HSIC(Gaussian("scale-free")), on="prediction", given={"y": [0, 1]})
        + Penalty(HSIC(), given={"y": 5})  # skipped, in the shape of the stack
    )
    value = penalty.evaluate(z, prediction, s, y, w)
    assert value.total.shape == lead
    assert {v.shape for v in value.values} == {torch.Size(lead)}
    for place in np.ndindex(*lead):
        alone = penalty.evaluate(z[place], prediction[place], s, y, w).total
        torch.testing.assert_close(value.total[place], alone, rtol=1e-10, atol=1e-14)


# -- levels that are too small -------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "kept"), [(MIN_ROWS - 1, False), (MIN_ROWS, True)])
def test_levels_with_fewer_than_eleven_rows_are_skipped_reported_and_warned_of(rows, kept):
    assert MIN_ROWS == 11
    z, _, s, _, _ = sample()
    y = torch.zeros(48, dtype=torch.float64)
    y[:rows] = 1.0
    penalty = Penalty(HSIC(), given="y")
    zero, one = naive_hsic(z, s, NAMES, rows_of(y, 0)), naive_hsic(z, s, NAMES, rows_of(y, 1))
    value = penalty.evaluate(z, None, s, y)
    assert value.skipped == (() if kept else ((1.0, rows),))
    # It counts as zero: the others do not grow when a batch has few rows of one level.
    assert value.total.item() == pytest.approx((zero + kept * one) / 2, **CLOSE)
    if kept:
        assert penalty(z, None, s, y).item() == value.total.item()  # a warning would be an error here
    else:
        with pytest.warns(UserWarning, match=r"fewer than 11 rows add nothing here: '1\.0'"):
            total = penalty(z, None, s, y)
        assert total.item() == value.total.item()


def test_rows_of_weight_zero_do_not_count_towards_the_eleven():
    z, _, s, _, _ = sample()
    y = torch.zeros(48, dtype=torch.float64)
    y[:12] = 1.0
    w = torch.ones(48, dtype=torch.float64)
    w[:2] = 0.0
    penalty = Penalty(HSIC(), given={"y": 1})
    assert penalty.evaluate(z, None, s, y).skipped == ()
    value = penalty.evaluate(z, None, s, y, w)
    assert value.skipped == ((1, 10),)
    assert value.total.item() == 0.0


def test_a_level_that_is_not_there_is_skipped_with_no_rows():
    z, _, s, y, _ = sample()
    value = Penalty(HSIC(), given={"y": [0, 7]}, columns=["age", "sex"]).evaluate(z, None, s, y)
    assert value.skipped == ((7, 0), (7, 0))  # once for each term
    expected = sum(naive_hsic(z, s, [name], rows_of(y, 0)) / 2 for name in ("age", "sex"))
    assert value.total.item() == pytest.approx(expected, **CLOSE)


def test_few_rows_are_no_reason_to_skip_where_no_level_is_given():
    z, _, s, y, _ = sample()
    few = torch.arange(6)
    value = Penalty(HSIC()).evaluate(z[few], None, s[few], y[few])
    assert value.skipped == ()
    assert value.total.item() == pytest.approx(naive_hsic(z, s, NAMES, range(6)), **CLOSE)


# -- calibration ---------------------------------------------------------------------------------------

HALVES = range(24), range(24, 48)


@pytest.mark.parametrize("side", ["s", "z", "both"])
def test_calibrate_fixes_the_scales_of_the_side_asked_for(side):
    z, prediction, s, y, w = sample()
    first, second = (torch.tensor(half) for half in HALVES)
    z = torch.where(torch.arange(48)[:, None] < 24, z, 3 * z)  # other scales on the rows to come
    penalty = Penalty(HSIC(), columns=[("age", "sex")])
    fixed = penalty.calibrate(z[first], None, s[first], y[first], weights=w[first], side=side)
    positive = [i for i in HALVES[0] if w[i] > 0]
    sigma_z = median_distance(z.numpy()[positive]) if side in ("z", "both") else None
    sigma_s = {"age": median_distance(s.values.numpy()[positive, :1])} if side in ("s", "both") else None
    expected = naive_hsic(z, s, ["age", "sex"], HALVES[1], w, sigma_z, sigma_s)
    actual = fixed(z[second], prediction[second], s[second], y[second], w[second])
    assert actual.item() == pytest.approx(expected, **CLOSE)
    # The penalty itself has learned nothing.
    before = naive_hsic(z, s, ["age", "sex"], HALVES[1], w)
    assert penalty(z[second], None, s[second], None, w[second]).item() == pytest.approx(before, **CLOSE)
    assert abs(before - expected) > 1e-5


def test_fixing_s_first_and_z_later_is_what_training_does_and_equals_both_at_once():
    z, prediction, s, y, w = sample(66)
    rows, later = torch.arange(60), torch.arange(6, 66)
    penalty = Penalty(HSIC(), given={"y": [0, 1]}, columns=["age", "sex"]) + 0.5 * Penalty(
        KernelHGR(), on="prediction"
    )
    on = (z[rows], prediction[rows], s[rows], y[rows])
    both = penalty.calibrate(*on, weights=w[rows])
    steps = penalty.calibrate(*on, weights=w[rows], side="s").calibrate(*on, weights=w[rows], side="z")
    values = [p(z[later], prediction[later], s[later], y[later], w[later]).item() for p in (both, steps)]
    assert values[0] == pytest.approx(values[1], **CLOSE)


def test_each_level_and_each_set_of_columns_gets_scales_of_its_own():
    z, _, s, y, _ = sample(66)
    z = z * (1 + 4 * y)[:, None]  # another spread of z in each level
    penalty = 0.5 * Penalty(HSIC(), given={"y": [0, 1]}, columns=["age", "income"])
    fixed = penalty.calibrate(z, None, s, y)
    assert fixed.factors == (0.25,) * 4
    told = [(term.given, term.columns) for term in fixed.terms]
    assert told == [({"y": level}, ((name,),)) for name in ("age", "income") for level in (0, 1)]
    for term in fixed.terms:
        rows, (name,) = rows_of(y, term.label), term.columns[0]
        assert term.dependence.kernel_z.bandwidth == pytest.approx(median_distance(z.numpy()[rows]), **CLOSE)
        column = s.columns([name]).values.numpy()[rows]
        assert term.dependence.kernel_s.bandwidth == pytest.approx(median_distance(column), **CLOSE)
    torch.testing.assert_close(fixed(z, None, s, y), penalty(z, None, s, y), rtol=1e-12, atol=0)


def test_levels_seen_in_calibration_keep_their_share_in_batches_without_them():
    z, _, s, y, _ = sample(66)
    fixed = Penalty(HSIC(), given="y").calibrate(z, None, s, y)
    rows = torch.tensor(rows_of(y, 0))
    value = fixed.evaluate(z[rows], None, s[rows], y[rows])
    assert value.skipped == ((1.0, 0), (2.0, 0))
    assert value.total.item() == pytest.approx(naive_hsic(z, s, NAMES, rows_of(y, 0)) / 3, **CLOSE)


def test_a_level_too_small_to_calibrate_on_keeps_its_rules():
    z, _, s, y, _ = sample(48)  # eight rows with y = 2
    fixed = Penalty(HSIC(), given={"y": [0, 2]}, columns=["age"]).calibrate(z, None, s, y)
    assert [type(term.dependence.kernel_z.bandwidth) for term in fixed.terms] == [float, str]
    z, _, s, y, _ = sample(96, seed=1)
    value = fixed.evaluate(z, None, s, y)
    assert value.skipped == ()
    assert value.values[1].item() == pytest.approx(naive_hsic(z, s, ["age"], rows_of(y, 2)), **CLOSE)


def test_scale_free_stays_a_rule_unless_frozen():
    z, _, s, _, _ = sample()
    penalty = Penalty(HSIC(Gaussian("scale-free"), Gaussian(1.0)))
    free, frozen = (penalty.calibrate(z, None, s, freeze=freeze) for freeze in (False, True))
    torch.testing.assert_close(free(5 * z, None, s), free(z, None, s), rtol=1e-10, atol=0)
    sigma = math.sqrt(2 * z.numpy().var(axis=0).sum())
    expected = HSIC(Gaussian(sigma), Gaussian(1.0))(5 * z, s)
    torch.testing.assert_close(frozen(5 * z, None, s), expected, rtol=1e-10, atol=0)


def test_an_adversary_gets_its_layers_from_the_generator_for_each_level():
    z, _, s, y, _ = sample()
    age = s.columns(["age"])
    penalty = Penalty(Adversary((4,)), given={"y": [0, 1]})
    one, same, other = (
        penalty.calibrate(z, None, age, y, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    weights = [[term.dependence.weights[0] for term in p.terms] for p in (one, same, other)]
    assert torch.equal(weights[0][0], weights[1][0])
    assert torch.equal(weights[0][1], weights[1][1])
    assert not torch.equal(weights[0][0], weights[2][0])
    assert not torch.equal(weights[0][0], weights[0][1])
    assert len(list(one.parameters())) == 8


# -- labels as codes -----------------------------------------------------------------------------------


def test_relabel_puts_codes_in_the_place_of_labels_and_leaves_the_penalty_alone():
    z, prediction, s, y, _ = sample()
    penalty = Penalty(HSIC(), given={"y": "good"}) + 0.5 * Penalty(
        HSIC(), given={"y": ["bad", "good"]}, on="prediction"
    )
    coded = penalty.relabel({"bad": 0.0, "good": 1.0, "never": 2.0})
    assert [term.given for term in coded.terms] == [{"y": [1.0]}, {"y": [0.0, 1.0]}]
    assert [term.given for term in penalty.terms] == [{"y": "good"}, {"y": ["bad", "good"]}]
    expected = naive_hsic(z, s, NAMES, rows_of(y, 1)) + 0.25 * (
        naive_hsic(prediction, s, NAMES, rows_of(y, 0)) + naive_hsic(prediction, s, NAMES, rows_of(y, 1))
    )
    assert coded(z, prediction, s, y).item() == pytest.approx(expected, **CLOSE)
    for untouched in (None, "y"):
        assert Penalty(HSIC(), given=untouched).relabel({"a": 0.0}).terms[0].given == untouched


def test_relabel_refuses_labels_that_are_no_classes():
    with pytest.raises(ValueError, match=r"'given' must name classes of y, among 'no', 'yes'. Got '1'"):
        Penalty(HSIC(), given={"y": 1}).relabel({"no": 0.0, "yes": 1.0})


def test_a_penalty_says_whether_it_needs_y():
    plain, given = Penalty(HSIC()), Penalty(HSIC(), given={"y": 1})
    assert [p.needs_y for p in (plain, given, plain + plain, plain + given)] == [False, True, False, True]


# -- gradients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "penalty",
    [
        Penalty(HSIC(Gaussian("scale-free"))),
        Penalty(HSIC(Gaussian(1.0), root=True), given={"y": [0, 1]}),
        Penalty(HSIC(Gaussian("scale-free"), normalized=True), columns=[("age", "sex"), "income"]),
        Penalty(HSIC(Linear()), on="prediction") + 0.3 * Penalty(HSIC(Gaussian(1.0)), given={"y": 0}),
        Penalty(GDP(0.3), on="prediction", given={"y": [0, 1, 2]}, columns=["age"]),
    ],
    ids=["parity", "odds", "columns", "sum", "gdp"],
)
def test_gradients_are_those_of_finite_differences(penalty, weighted):
    z, prediction, s, y, w = sample(42)
    z.requires_grad_()
    prediction = prediction.detach().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the third level is too small
        assert torch.autograd.gradcheck(
            lambda z, p: penalty(z, p, s, y, w if weighted else None), (z, prediction), fast_mode=True
        )


def test_rows_outside_the_level_have_no_gradient():
    z, _, s, y, _ = sample()
    z.requires_grad_()
    Penalty(HSIC(), given={"y": 1})(z, None, s, y).backward()
    moved = z.grad.abs().sum(dim=1) > 0
    assert torch.equal(moved, y == 1)


def test_a_penalty_of_which_all_is_skipped_has_no_gradient_but_can_be_added_to_a_loss():
    z, _, s, y, _ = sample()
    z.requires_grad_()
    total = Penalty(HSIC(), given={"y": 2}).evaluate(z, None, s, y).total
    (z.square().sum() + total).backward()
    torch.testing.assert_close(z.grad, 2 * z.detach())


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Penalty(MutualInformation()), ValueError, "'dependence' must be differentiable. Got Mut"),
        (lambda: Penalty("hsic"), TypeError, "'dependence' must be a measure. Got str"),
        (lambda: Penalty(HSIC), TypeError, "'dependence' must be a measure. Got"),
        (lambda: Penalty(HSIC(), on="z"), ValueError, "'on' must be 'representation', 'prediction' or 'p"),
        (lambda: Penalty(HSIC(), given="s"), ValueError, "'given' must be None, 'y' or"),
        (lambda: Penalty(HSIC(), given=1), ValueError, "'given' must be None, 'y' or"),
        (lambda: Penalty(HSIC(), given={"s": 1}), ValueError, "'given' must be None, 'y' or"),
        (lambda: Penalty(HSIC(), given={"y": 1, "s": 1}), ValueError, "'given' must be None, 'y' or"),
        (
            lambda: Penalty(HSIC(), given={"y": []}),
            ValueError,
            "'given' must name a label or a list of labels",
        ),
        (
            lambda: Penalty(HSIC(), columns="age"),
            ValueError,
            "'columns' must be a list of names, or of tuples of names, or None",
        ),
        (
            lambda: Penalty(HSIC(), columns=[]),
            ValueError,
            "'columns' must be a list of names, or of tuples of names, or None",
        ),
        (lambda: Penalty(HSIC(), columns=[0]), ValueError, "'columns' must"),
        (lambda: Penalty(HSIC(), columns=[("age", 1)]), ValueError, "'columns' must"),
        (lambda: Penalty(HSIC(), columns=[()]), ValueError, "'columns' must"),
        (lambda: -1.0 * Penalty(HSIC()), ValueError, "'factors' must be non-negative numbers"),
        (lambda: Penalty(HSIC()) * math.inf, ValueError, "'factors' must be non-negative numbers"),
        (lambda: Penalty(HSIC()) * math.nan, ValueError, "'factors' must be non-negative numbers"),
        (lambda: PenaltySum([], []), ValueError, "'terms' must be penalties with one factor each"),
        (lambda: PenaltySum([Penalty(HSIC())], [1.0, 2.0]), ValueError, "'terms' must be penalties"),
        (lambda: PenaltySum([HSIC()], [1.0]), ValueError, "'terms' must be penalties"),
        (lambda: True * Penalty(HSIC()), TypeError, "unsupported operand"),
        (lambda: Penalty(HSIC()) * Penalty(HSIC()), TypeError, "unsupported operand"),
        (lambda: Penalty(HSIC()) + 1.0, TypeError, "unsupported operand"),
    ],
)
def test_what_is_no_penalty_is_refused_when_it_is_made(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("penalty", "changes", "error", "text"),
    [
        (Penalty(HSIC(), given="y"), {"y": None}, ValueError, "'y' must be passed to a penalty that is give"),
        (Penalty(HSIC()), {"z": None}, ValueError, "'z' must be passed to a penalty on the representation"),
        (
            Penalty(HSIC()) + Penalty(HSIC(), on="prediction"),
            {"prediction": None},
            ValueError,
            "'prediction' must be passed to a penalty on the prediction",
        ),
        (Penalty(HSIC(), columns=["height"]), {}, ValueError, "'columns' must be among the"),
        (Penalty(HSIC()), {"s": np.zeros(48)}, TypeError, "'s' must be a tensor or a Sensitive. Got ndarray"),
        (Penalty(HSIC(), given={"y": 0}), {"y": torch.zeros(40)}, ValueError, "'y' must have 48 rows"),
        (Penalty(HSIC(), given={"y": 0}), {"y": torch.zeros(50)}, ValueError, "'y' must have 48 rows"),
        (Penalty(HSIC(), given={"y": 0}), {"s": torch.zeros(50)}, ValueError, "'[sy]' must have"),
        (Penalty(HSIC(), given={"y": 0}), {"weights": torch.ones(50)}, ValueError, "'weights' must have"),
    ],
    ids=[
        "no y", "no z", "no prediction", "no column", "array", "short y", "long y", "long s",
        "long weights",
    ],
)  # fmt: skip
def test_what_a_penalty_cannot_be_evaluated_on_is_refused(penalty, changes, error, text):
    z, prediction, s, y, w = sample()
    arguments = {"z": z, "prediction": prediction, "s": s, "y": y, "weights": w} | changes
    with pytest.raises(error, match=text):
        penalty.evaluate(**arguments)
    with pytest.raises(error, match=text):
        penalty.calibrate(**arguments)


def test_weights_are_refused_by_a_penalty_whose_measure_takes_none():
    z, prediction, s, y, w = sample()
    with pytest.raises(ValueError, match="'weights' must be None for estimator='unbiased'"):
        Penalty(HSIC(estimator="unbiased"), given={"y": 0})(z, prediction, s, y, w)


# -- one side at a time, and printed forms, over the face of frhsic.dependence -------------------------

# Every argument differs from its default where it can.
MEASURES = {
    "HSIC": [
        HSIC(),
        HSIC(Gaussian("scale-free"), Laplace(2.0), normalized=True, root=True, block_size=7),
        HSIC(Linear() + 0.5 * Gaussian(), estimator="unbiased"),
        HSIC(reference="uniform"),
    ],
    "FeatureHSIC": [
        FeatureHSIC(),
        FeatureHSIC(
            Gaussian("scale-free"),
            Laplace(2.0),
            n_features=(32, 9),
            random_state=3,
            normalized=True,
            root=True,
        ),
        FeatureHSIC(estimator="unbiased"),
    ],
    "EIPM": [EIPM(), EIPM(Gaussian("scale-free", whiten=True), 0.3, anchors=9, root=False, range_s=2.0)],
    "GDP": [GDP(), GDP(0.3, weighting="grid", n_grid=20, range_s=3.0)],
    "Adversary": [Adversary(), Adversary((4, 3), n_bins=3)],
    "RankGap": [RankGap()],
    "ScoreGap": [ScoreGap(), ScoreGap(cutoff=0.1)],
    "BinnedMMD": [BinnedMMD(), BinnedMMD(3, binning="width", kernel_z=Gaussian())],
    "DistanceCovariance": [
        DistanceCovariance(),
        DistanceCovariance(normalized=True, estimator="unbiased", root=True, whiten=True, block_size=9),
    ],
    "KernelHGR": [KernelHGR(), KernelHGR(0.1, 0.2, kernel_z=Laplace(), kernel_s=Energy())],
    "MutualInformation": [MutualInformation(), MutualInformation(3, standardize=False)],
    "RecoveredVariance": [
        RecoveredVariance(),
        RecoveredVariance(9, degree=2, ridge=0.1, seed=3, exact_gradient=False),
    ],
}
EACH = [
    pytest.param(measure, id=f"{name} {k}")
    for name, known in MEASURES.items()
    for k, measure in enumerate(known)
]
# Those with a rule for the scale of z, or of s, that calibrate turns into numbers.
RULE_Z = [MEASURES["HSIC"][0], MEASURES["EIPM"][0], MEASURES["BinnedMMD"][1], *MEASURES["KernelHGR"]]
RULE_S = [MEASURES["HSIC"][0], MEASURES["EIPM"][0], MEASURES["GDP"][0], MEASURES["BinnedMMD"][0]]


def two_samples():
    z, _, s, _, _ = sample(60)
    age = s.columns(["age"])
    first, second = torch.arange(30), torch.arange(30, 60)
    return (z[first], age[first]), (2 * z[second], Sensitive(3 * age[second].values, ("age",), age.kinds))


PUBLIC = {name: getattr(frhsic.dependence, name) for name in frhsic.dependence.__all__}
PUBLIC["FeatureHSIC"] = FeatureHSIC


def test_every_public_measure_is_tried():
    measures = {name for name, made in PUBLIC.items() if issubclass(made, Dependence)}
    assert set(MEASURES) == measures - {"Dependence"}
    for name, known in MEASURES.items():
        signature = inspect.signature(PUBLIC[name])
        for argument, parameter in signature.parameters.items():
            assert any(repr(m.arguments()[argument]) != repr(parameter.default) for m in known), argument


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("measure", EACH)
def test_s_first_and_then_z_equals_both_at_once(measure, freeze):
    here, there = two_samples()
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    both = measure.calibrate(*here, generators[0], freeze=freeze)
    s_first = measure.calibrate(*here, generators[1], freeze=freeze, side="s")
    steps = s_first.calibrate(*here, generators[1], freeze=freeze, side="z")
    torch.testing.assert_close(steps(*there), both(*there), rtol=1e-12, atol=0)
    assert type(steps) is type(both) is type(measure)
    if not isinstance(measure, Adversary):  # which has no layers before it is calibrated
        z_first = measure.calibrate(*here, freeze=freeze, side="z").calibrate(*here, freeze=freeze, side="s")
        torch.testing.assert_close(z_first(*there), both(*there), rtol=1e-12, atol=0)


@pytest.mark.parametrize("measure", RULE_Z, ids=repr)
def test_side_s_leaves_the_scale_of_z_to_the_sample_and_side_z_fixes_it(measure):
    (z, s), _ = two_samples()
    for side, follows in (("s", True), ("z", False), ("both", False)):
        fixed = measure.calibrate(z, s, side=side)
        assert math.isclose(fixed(4 * z, s).item(), measure(z, s).item(), rel_tol=1e-9) is follows, side


@pytest.mark.parametrize("measure", RULE_S, ids=repr)
def test_side_z_leaves_the_scale_of_s_to_the_sample_and_side_s_fixes_it(measure):
    (z, s), _ = two_samples()
    wide = Sensitive(4 * s.values, s.names, s.kinds)
    for side, follows in (("s", False), ("z", True), ("both", False)):
        fixed = measure.calibrate(z, s, side=side)
        assert math.isclose(fixed(z, wide).item(), measure(z, s).item(), rel_tol=1e-9) is follows, side


def test_an_adversary_has_layers_after_side_s_and_keeps_them_under_side_z():
    here, there = two_samples()
    made = Adversary((4,)).calibrate(*here, torch.Generator().manual_seed(0), side="s")
    kept = made.calibrate(*there, torch.Generator().manual_seed(1), side="z")
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), kept.parameters(), strict=True))
    assert len(list(made.parameters())) == 4


def test_sides_that_do_not_exist_are_refused():
    (z, s), _ = two_samples()
    for known in MEASURES.values():
        with pytest.raises(ValueError, match=r"'side' must be 'both', 'z' or 's'\. Got 'x'"):
            known[0].calibrate(z, s, side="x")
    with pytest.raises(ValueError, match=r"'side' must be 'both', 'z' or 's'\. Got 'x'"):
        Penalty(HSIC()).calibrate(z, None, s, side="x")


@pytest.mark.parametrize("measure", EACH)
def test_arguments_and_the_printed_form_make_the_measure_again(measure):
    here, there = two_samples()
    names = {name: getattr(kernels, name) for name in kernels.__all__} | PUBLIC
    printed = f"{type(measure).__name__}({measure.extra_repr()})"
    copies = [type(measure)(**measure.arguments()), eval(printed, {"__builtins__": {}}, names)]
    assert measure.extra_repr() in repr(measure)
    if not isinstance(measure, Adversary):  # whose layers are printed below its arguments
        assert repr(measure) == printed
    for copy in copies:
        assert repr(copy) == repr(measure)
        one, other = (
            m.calibrate(*here, torch.Generator().manual_seed(0))(*there).item() for m in (copy, measure)
        )
        assert one == other


@pytest.mark.parametrize(
    "measure",
    [HSIC(Linear(), estimator="unbiased"), DistanceCovariance(estimator="unbiased")],
    ids=["HSIC", "DistanceCovariance"],
)
def test_a_measure_without_a_lower_bound_is_refused(measure):
    z, _, s, _, _ = sample()
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(3))
    values = [measure(scale * z[order], s.columns(["age"])).item() for scale in (1.0, 1e3)]
    assert not measure.bounded_below
    assert abs(values[1]) > 100 * abs(values[0])
    with pytest.raises(ValueError, match=r"^'dependence' must be bounded below"):
        Penalty(measure)


def test_penalties_can_be_summed():
    assert len(sum([Penalty(HSIC()), Penalty(HSIC()), 0.5 * Penalty(HSIC())]).terms) == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_penalty_computes_in_float32_under_mixed_precision(dtype):
    z, _, s, _, _ = sample()
    z = z.float()
    penalty = Penalty(HSIC(estimator="unbiased"))
    expected = penalty(z, None, s).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert penalty(z, None, s).item() == expected
    rounded = z.to(dtype)
    assert penalty(rounded, None, s).item() == penalty(rounded.float(), None, s).item()


# -- probabilities -------------------------------------------------------------------------------------


def test_on_probability_is_the_hsic_of_what_a_classifier_makes_of_its_logits():
    z, _, s, y, w = sample()
    logits = 2.0 * z[:, :1]
    p = torch.tensor([[1.0 / (1.0 + math.exp(-x))] for x in logits[:, 0].tolist()], dtype=torch.float64)
    penalty = Penalty(HSIC(), on="probability")
    for weights in (None, w):
        actual = penalty(None, logits, s, y, weights).item()
        assert actual == pytest.approx(naive_hsic(p, s, NAMES, ALL_ROWS, weights), **CLOSE)
    assert actual != pytest.approx(Penalty(HSIC(), on="prediction")(None, logits, s, y, w).item(), rel=1e-3)
    rows = []
    for row in z.tolist():
        powers = [math.exp(x) for x in row]
        rows.append([x / sum(powers) for x in powers])
    shares = torch.tensor(rows, dtype=torch.float64)
    actual = penalty(None, z, s).item()
    assert actual == pytest.approx(naive_hsic(shares, s, NAMES, ALL_ROWS), **CLOSE)


def test_on_probability_within_levels_columns_and_stacks():
    z, _, s, y, _ = sample(lead=(2,))
    logits = z[..., :1]
    penalty = Penalty(HSIC(), on="probability", given={"y": 0}, columns=["age", "sex"])
    expected = [
        sum(naive_hsic(x.sigmoid(), s, [name], rows_of(y, 0)) for name in ("age", "sex")) for x in logits
    ]
    np.testing.assert_allclose(penalty(None, logits, s, y).numpy(), expected, rtol=1e-10)
    with pytest.raises(ValueError, match=r"'prediction' must be passed to a penalty on the probability"):
        penalty(z, None, s, y)


def test_gradients_of_a_penalty_on_probabilities_are_those_of_the_probabilities():
    z, _, s, _, _ = sample()
    logits = z[:, :1].clone().requires_grad_()
    Penalty(HSIC(Gaussian(0.3)), on="probability")(None, logits, s).backward()
    p = z[:, :1].sigmoid().requires_grad_()
    HSIC(Gaussian(0.3))(p, s).backward()
    chain = p.grad * p.detach() * (1.0 - p.detach())
    torch.testing.assert_close(logits.grad, chain, rtol=1e-10, atol=1e-16)
