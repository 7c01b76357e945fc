"""What changed between two audits, from the rows of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.auditing._comparison import CALIBRATION, MeanChange, NumberChange, Samples
from frhsic.auditing._limits import DECISION_MEASURE
from frhsic.auditing._parts import Column
from frhsic.auditing._record import hash_rows
from frhsic.auditing._rows import RowsSubject, subjects_of_rows
from frhsic.auditing._subject import Settings
from frhsic.data import Sensitive, read_blocks, split_labels
from frhsic.dependence import GDP, Dependence, RankGap, ScoreGap
from frhsic.inference import CurveChange, GapChange, curve_change, gap_change

# Columns that make two samples the same ones.
DATA: Final = ("scores", "sensitive_features", "y_true", "sample_weight", "groups")
WITHOUT_ROWS: Final = {
    "same rows": "the same rows: give --data for an interval",
    "same data": "the same data: it comes from options or versions",
    "not known": "without digests it is not known whether the two samples share rows",
}


def columns_of(plain: Mapping[str, Any]) -> dict[str, Column]:
    """Return the score and the sensitive columns as they are described."""
    found = [*([] if plain["score"] is None else [plain["score"]]), *plain["columns"]]
    names = {field.name for field in fields(Column)}
    return {
        one["name"]: Column(**{name: value for name, value in one.items() if name in names}) for one in found
    }


class Both(NamedTuple):
    """The rows of both audits, as these read them."""

    old: RowsSubject
    new: RowsSubject
    records: tuple[Mapping[str, Any], Mapping[str, Any]]
    paired: bool
    groups: list[str] | None
    level: float

    @classmethod
    def read(
        cls,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        old_rows: Mapping[str, object],
        new_rows: Mapping[str, object],
        samples: Samples,
    ) -> Both:
        """Check rows against the digests of their records, and read them."""
        subjects = []
        for name, plain, rows in (("old_rows", old, old_rows), ("new_rows", new, new_rows)):
            _check_rows(name, plain, rows)
            subjects.append(_read_subject(plain, rows))
        paired = samples in ("same rows", "same data")
        if paired and any(
            digest_of(old, role) != digest_of(new, role) for role in ("sample_weight", "groups")
        ):
            must = "have the weights and groups of 'old_rows', whose sensitive columns they have"
            raise ArgumentError("new_rows", must, "others", "Audit both scores with the same ones.")
        groups = None
        if subjects[0].groups is not None or subjects[1].groups is not None:
            groups = _labels_of("a", old_rows, old["n"])
            if not paired:
                groups += _labels_of("b", new_rows, new["n"])
        return cls(subjects[0], subjects[1], (old, new), paired, groups, new["confidence_level"])

    def arguments(self, names: Sequence[str], z: tuple[Tensor, Tensor]) -> dict[str, Any]:
        """Return the arguments of a function of two samples, for one attribute or several jointly."""
        a, b = (one.s.columns(names) for one in (self.old, self.new))
        common = {"random_state": self.new.settings.seed, "confidence_level": self.level}
        if self.paired:
            w = self.old.w
            return {"scores": torch.cat(z, dim=1), "s": a, "sample_weight": w, "groups": self.groups} | common
        w = None
        if self.old.w is not None or self.new.w is not None:
            w = torch.cat(
                [torch.ones(one.n) / one.n if one.w is None else one.w for one in (self.old, self.new)]
            )
        mask = torch.arange(len(a) + len(b)) >= len(a)
        more = {"new": mask, "sample_weight": w, "groups": self.groups}
        return {"scores": torch.cat(z), "s": _join(a, b), **more} | common

    @property
    def names(self) -> list[str]:
        """The attributes that both have, and as the same kind."""
        kinds = [dict(zip(one.s.names, one.s.kinds, strict=True)) for one in (self.old, self.new)]
        return [name for name, kind in kinds[0].items() if kinds[1].get(name) == kind]

    def columns(self, attribute: str) -> list[str] | None:
        """Return the columns of an attribute of the audits; None unless both have them."""
        if attribute in self.names:
            return [attribute]
        return list(self.names) if " and ".join(self.names) == attribute else None

    def notes(self) -> Iterator[str]:
        """Yield what the intervals from rows are about."""
        yield ("Changes from rows are changes of gaps within the same values or ranges in both samples.")
        for name in [] if self.paired else self.names:
            a, b = (one.s.columns([name]).values[:, 0].sort().values for one in (self.old, self.new))
            if torch.equal(a, b):
                yield (
                    f"Both samples hold the same values of {name} in another order. If they are the same "
                    "people, sort the rows alike and audit them again: they are taken as independent here."
                )


def _check_rows(name: str, plain: Mapping[str, Any], rows: Mapping[str, object]) -> None:
    """Raise ArgumentError unless the rows have the digests of a record."""
    unknown = [role for role in rows if role not in DATA]
    if unknown or "scores" not in rows:
        got = repr(unknown[0])[:40] if unknown else "no scores"
        raise ArgumentError(name, f"have keys among {', '.join(DATA)}", got, "Pass those of audit().")
    if not plain["record"]["columns"]:
        fix = "Without digests nothing shows that these are the rows of the record."
        raise ArgumentError(name, "come with a record that holds digests", "one without", fix)
    found = hash_rows({role: rows.get(role) for role in DATA})
    for role in DATA:
        if [one.sha256 for one in found if one.role == role] != digest_of(plain, role):
            fix = "Pass the rows that were audited, in their order."
            raise ArgumentError(name, "be the rows of the record", f"other values of {role!r}", fix)


def digest_of(plain: Mapping[str, Any], role: str) -> list[str]:
    return [one["sha256"] for one in plain["record"]["columns"] if one["role"] == role]


def _read_subject(plain: Mapping[str, Any], rows: Mapping[str, object]) -> RowsSubject:
    options = plain["record"]["options"]
    settings = Settings(plain["confidence_level"], plain["seed"])
    label = options["positive_label"]
    if label is not None:
        known = {str(one.value): one.value for one in split_labels(rows["y_true"], name="y_true").kept}
        label = known[label]
    subjects, _ = subjects_of_rows(
        rows["scores"],
        settings,
        sensitive_features=rows.get("sensitive_features"),
        y_true=rows.get("y_true"),
        sample_weight=rows.get("sample_weight"),
        kinds=options["kinds"] or None,
        groups=rows.get("groups"),
        positive_label=label,
    )
    return subjects[-1]


def _labels_of(sample: str, rows: Mapping[str, object], n: int) -> list[str]:
    """Return the groups of rows by their labels, which may be in both samples; rows without are alone."""
    if rows.get("groups") is None:
        return [f"{sample}{row}" for row in range(n)]
    (block,) = read_blocks(rows["groups"], "groups")
    return [f"={label}" for label in block.array.tolist()]


def _join(a: Sensitive, b: Sensitive) -> Sensitive:
    """Return the columns of two samples, the categories of both in one order."""
    columns, categories = [], []
    known = [one.categories or (None,) * len(one.names) for one in (a, b)]
    for j, kind in enumerate(a.kinds):
        pair, labels = (a.values[:, j], b.values[:, j]), None
        if kind == "categorical":
            own = [each[j] or () for each in known]
            labels = tuple(sorted({*own[0], *own[1]}, key=lambda label: (str(type(label)), label)))
            codes = [torch.tensor([labels.index(x) for x in each], dtype=torch.float64) for each in own]
            pair = (codes[0][pair[0].long()], codes[1][pair[1].long()])
        columns.append(torch.cat(pair))
        categories.append(labels)
    return Sensitive(torch.stack(columns, dim=1), a.names, a.kinds, tuple(categories))


def add_rows(
    numbers: tuple[NumberChange, ...], both: Both
) -> tuple[tuple[NumberChange, ...], tuple[str, ...]]:
    """Return the numbers, with the changes of gaps from rows."""
    found, incomparable = [], []
    for one in numbers:
        chosen, names = _measure_of(one, both), both.columns(one.attribute)
        if chosen is None or names is None:
            why = one.why
            if both.paired and one.basis == "estimates" and one.why == WITHOUT_ROWS["same rows"]:
                why = "of the same rows only gaps have one"
            found.append(replace(one, why=why))
            continue
        z, measure = chosen
        try:
            change = gap_change(dependence=measure, **both.arguments(names, z))
        except ArgumentError as error:
            incomparable.append(f"{one.title} on {one.attribute} from rows: {error}")
            found.append(one)
            continue
        found.append(_from_rows(one, change))
    return tuple(found), tuple(incomparable)


def _measure_of(one: NumberChange, both: Both) -> tuple[tuple[Tensor, Tensor], Dependence] | None:
    """Return the scores and the measure of a number that can be compared from rows."""
    if both.old.width != 1:
        return None
    z = both.old.z, both.new.z
    measures: dict[str, Dependence] = {"gap": ScoreGap(), "rank_gap": RankGap(), "gdp": GDP()}
    if one.measure in measures:
        return z, measures[one.measure]
    if one.measure == DECISION_MEASURE:
        known = both.records[0]["record"]["options"]["thresholds"]
        cutoff = next(x for x in known if one.title.endswith(f" at {x:g}"))
        return z, ScoreGap(cutoff=cutoff)
    if one.measure == CALIBRATION:
        old, new = both.old.residual(), both.new.residual()
        return None if old is None or new is None else ((old.z, new.z), GDP())
    return None


def _from_rows(one: NumberChange, found: GapChange) -> NumberChange:
    return replace(
        one,
        change=found.change,
        low=found.low,
        high=found.high,
        pvalue=found.pvalue,
        confidence_level=found.confidence_level,
        basis="rows",
        why=None,
        old_target=found.target,
        new_target=found.target,
    )


def compare_curves(both: Both) -> tuple[tuple[MeanChange, ...], tuple[str, ...]]:
    """Return the change of the mean score along each attribute that both audits have."""
    found, incomparable = [], []
    described = [columns_of(plain) for plain in both.records]
    for name in both.names if both.old.width == both.new.width == 1 else []:
        arguments = both.arguments([name], (both.old.z, both.new.z))
        try:
            curve = curve_change(**arguments)
        except ArgumentError as error:
            incomparable.append(f"The mean score along {name}: {error}")
            continue
        curve = _keep_visible(curve, [one[name] for one in described])
        labels = (arguments["s"].categories or (None,))[0] or ()
        seen = {int(point) for point in curve.points} if labels else set()
        hidden = "(fewer than 10 rows)"
        shown = tuple(str(label) if code in seen else hidden for code, label in enumerate(labels))
        found.append(MeanChange(name, shown, curve))
    return tuple(found), tuple(incomparable)


def _keep_visible(curve: CurveChange, columns: list[Column]) -> CurveChange:
    """Return a curve without the extremes of a continuous attribute: these belong to single rows."""
    kept = set(range(len(curve.points)))
    for column in columns:
        if column.kind == "continuous":
            kept &= set(column.visible(curve.points))
    values: dict[str, Any] = {
        name: tuple(getattr(curve, name)[i] for i in sorted(kept))
        for name in ("points", "old", "new", "change", "low", "high", "counts", "start", "stop")
    }
    return replace(curve, **values)
