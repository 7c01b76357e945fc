"""scikit-learn estimators over the training engine."""

from __future__ import annotations

import contextlib
import copy
import math
import numbers
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypedDict, TypeVar

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
    clone,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import (
    Label,
    Sensitive,
    check_aligned,
    split_labels,
    to_generator,
    to_matrix,
    to_sensitive,
    to_vector,
    to_weights,
)
from frhsic.dependence import HSIC
from frhsic.engine.nets import (
    Loss,
    Net,
    binary_cross_entropy,
    check_layers,
    cross_entropy,
    encoded_width,
    make_net,
    squared_error,
)
from frhsic.engine.path import check_strengths, train_path
from frhsic.engine.train import MIN_BATCH, Passes, Record, Rows, Trained, Training, own_randomness, train
from frhsic.estimators._scaling import Rule, Scaling, fit_sensitive
from frhsic.kernels import Gaussian
from frhsic.numerics._centering import Estimator
from frhsic.penalty import Penalty, PenaltySum, budget_penalty, default_penalty

_CHUNK = 65_536  # rows that a prediction holds at a time
_MOST_CATEGORIES = 100
_FEW_ROWS = 10  # below, a penalty warns
MET = 1.15  # times its budget: what a model may have without a warning
BUDGET = 0.1  # where neither a budget nor a lambda is given


@dataclass(frozen=True, eq=False)
class _Problem:
    """What differs between the estimators: target (None: X itself), loss, outputs, and classes."""

    y: Tensor | None
    loss: Loss
    outputs: int
    head: tuple[int, ...] = ()
    labels: Tensor | None = None
    classes: NDArray[Any] | None = None
    class_weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Scalings:
    """The scales of X, of a continuous target and of S."""

    x: Scaling
    y: Scaling | None
    s: Scaling | None

    @classmethod
    def fit(cls, rows: Rows, problem: _Problem, rule: Rule) -> _Scalings:
        """Learn them on the training rows."""
        x = Scaling.fit(rows.x, rule, rows.weights)
        regression = problem.y is not None and problem.labels is None
        y = Scaling.fit(rows.y.unsqueeze(-1), rule, rows.weights) if regression else None
        s = None if rows.s is None else fit_sensitive(rows.s, rule, rows.weights)
        return cls(x, y if problem.y is not None else x, s)

    def apply(self, rows: Rows) -> Rows:
        """Return scaled rows, with weights of mean one."""
        y = rows.y
        if self.y is self.x:
            y = self.x.apply(y)
        elif self.y is not None:
            y = self.y.apply(y.unsqueeze(-1)).squeeze(-1)
        s = rows.s
        if s is not None and self.s is not None:
            s = Sensitive(self.s.apply(s.values), s.names, s.kinds, s.categories)
        weights, loss_weights = (
            None if w is None else w / w.mean() for w in (rows.weights, rows.loss_weights)
        )
        return Rows(self.x.apply(rows.x), y, s, weights, loss_weights, rows.labels)


@dataclass(frozen=True, eq=False)
class _Task:
    """What a fit was given, checked: rows to train on, rows set aside, and how to train."""

    problem: _Problem
    columns: BaseEstimator
    rows: Rows
    validation: Rows | None
    penalty: Penalty | PenaltySum
    generator: torch.Generator
    training: Training
    device: torch.device


@dataclass(eq=False)
class _Stream:
    """What ``partial_fit`` goes on with: a task without its rows, its scales, the training, and what came."""

    task: _Task
    scaling: _Scalings
    passes: Passes
    parameters: dict[str, Any]
    labels: dict[str, list[Label]] = field(default_factory=dict)  # of categories of S, in the order of codes
    records: list[Record] = field(default_factory=list)


class _Call(TypedDict):
    """What every kind of training is called with."""

    loss: Loss
    rows: Rows
    penalty: Penalty | PenaltySum
    epochs: int
    batch_size: int
    learning_rate: float
    training: Training
    generator: torch.Generator
    validation: Rows | None


class _Adapter(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What the three estimators share: the door, the scaling, the training, the representation."""

    # Pipelines and searches with metadata routing pass these on without being asked.
    __metadata_request__fit: ClassVar = {"sensitive_features": True, "sample_weight": True}
    __metadata_request__partial_fit: ClassVar = {"sensitive_features": True, "sample_weight": True}
    __metadata_request__score: ClassVar = {"sample_weight": True}

    def __init__(
        self,
        *,
        budget: float | None = None,
        lam: float | None = None,
        penalty: Penalty | PenaltySum | None = None,
        encoder: Sequence[int] | nn.Module = (50, 50),
        epochs: int = 200,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        random_state: Any = None,
        device: str | torch.device = "cpu",
        warm_start: bool = False,
        training: Training | None = None,
    ) -> None:
        self.budget = budget
        self.lam = lam
        self.penalty = penalty
        self.encoder = encoder
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.random_state = random_state
        self.device = device
        self.warm_start = warm_start
        self.training = training

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the representation Z of each row, shape ``(n, d)``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        """
        return self._forward(X, head=False).numpy()

    def _forward(self, X: Any, *, head: bool = True) -> Tensor:
        """Return the head's output, or z, in float64 on the CPU, chunk by chunk."""
        check_is_fitted(self, "encoder_")
        done = []
        with torch.inference_mode():
            for part in self._parts(X):
                z = self.encoder_(self.scaling_x_.apply(part))
                done.append(self.head_(z) if head else z)
        return torch.cat(done)

    def _parts(self, X: Any) -> Iterator[Tensor]:
        """Yield X as it must be to be predicted from, some rows at a time."""
        whole = None if issparse(X) and X.ndim == 2 and X.shape[0] else _read(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        if whole is not None:
            yield from whole.split(_CHUNK)
            return
        rows = X.tocsr()  # only these rows are ever dense
        for start in range(0, rows.shape[0], _CHUNK):
            yield _read(rows[start : start + _CHUNK])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        self._check_strength()
        if self.penalty is not None and not isinstance(self.penalty, (Penalty, PenaltySum)):
            raise TypeError(
                f"'penalty' must be a Penalty or None. Got {type(self.penalty).__name__}. "
                "Wrap a measure: Penalty(HSIC())."
            )
        if self.training is not None and not isinstance(self.training, Training):
            raise TypeError(
                f"'training' must be a Training or None. Got {type(self.training).__name__}. "
                "Write training=Training(clip=1.0)."
            )
        for name, usual in (("epochs", 200), ("batch_size", 256)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise ArgumentError(name, "be a whole number from 1", f"{value!r}", f"Try {usual}.")
        if self._penalised and self.batch_size < MIN_BATCH:
            raise ValueError(
                f"'batch_size' must be at least {MIN_BATCH} with a penalty. Got {self.batch_size}. Try 256."
            )
        if not _is_number(self.learning_rate) or not 0 < self.learning_rate < math.inf:
            raise ValueError(
                f"'learning_rate' must be a positive number. Got {self.learning_rate!r}. Try 1e-3."
            )
        for name in ("early_stopping", "warm_start"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(
                    f"'{name}' must be True or False. Got {getattr(self, name)!r}. Pass a boolean."
                )
        if not isinstance(self.encoder, nn.Module):
            check_layers(self.encoder, "encoder", empty=False)
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise ValueError("'device' must be there. Got 'cuda' where PyTorch finds none. Use device='cpu'.")
        checkpointed = self.training is not None and self.training.checkpoint is not None
        if checkpointed and not isinstance(self.random_state, numbers.Integral):
            raise ValueError(
                "'random_state' must be an integer with Training(checkpoint=...), or no call could go on. "
                f"Got {type(self.random_state).__name__}. Pass random_state=0."
            )

    def _check_strength(self) -> None:
        if self.budget is not None and self.lam is not None:
            raise ValueError(
                "'budget' must be None where 'lam' is given. "
                f"Got budget={self.budget!r} and lam={self.lam!r}. Leave one of them out."
            )
        if self.lam is not None and (not _is_number(self.lam) or not 0 <= self.lam < math.inf):
            raise ArgumentError(
                "lam", "be a non-negative number", f"{self.lam!r}", "Pass 0 to train without a penalty."
            )
        if self.budget is not None and (not _is_number(self.budget) or not 0 < self.budget <= 1):
            raise ValueError(
                "'budget' must lie above 0 and be at most 1: a share of the dependence of the unconstrained "
                f"model. Got {self.budget!r}. Try 0.1, or lam=0 to train without a penalty."
            )

    @property
    def _penalised(self) -> bool:
        return self.lam is None or self.lam > 0

    def _warn_of_few_rows(self, n: int) -> None:
        if self._penalised and n < _FEW_ROWS:
            warnings.warn(
                f"'X' has {n} rows to train on: the dependence on sensitive features of so few is mostly "
                f"chance, and {self._strength} acts on chance too. Pass more rows, hundreds if there are.",
                UserWarning,
                stacklevel=4,
            )

    @property
    def _strength(self) -> str:
        """The strength as one would write it."""
        if self.lam is not None:
            return f"lam = {self.lam:g}"
        return f"budget = {BUDGET if self.budget is None else self.budget:g}"

    def _read_sensitive(self, sensitive_features: Any, n: int, later: bool) -> Sensitive | None:
        if self._penalised and n < MIN_BATCH:
            raise ValueError(
                f"'X' must have at least {MIN_BATCH} rows for {self._strength}. "
                f"Got {n} sample{'s' if n > 1 else ''}. Pass more rows."
            )
        if isinstance(sensitive_features, Sensitive):
            if len(sensitive_features) != n:
                raise ValueError(
                    f"'sensitive_features' must have {n} rows like 'X'. Got {len(sensitive_features)}. "
                    "Drop or align the missing rows first."
                )
            return sensitive_features
        if sensitive_features is not None:
            constant = later or not self._penalised
            s = to_sensitive(sensitive_features, n_rows=n, min_rows=1, allow_constant=constant)
            if self._penalised:
                _refuse_many_categories(s)
            return s
        if not self._penalised:
            return None
        raise ValueError(
            f"'sensitive_features' must be passed to fit for {self._strength}. Got None. Pass them, or set "
            "lam=0. Inside a Pipeline or a search, first call "
            "sklearn.set_config(enable_metadata_routing=True)."
        )

    @abstractmethod
    def _problem(
        self, x: Tensor, y: Any, sample_weight: Any, classes: NDArray[Any] | None = None
    ) -> _Problem:
        """Return the target, the loss and the layers of the head; ``classes`` are those of all parts."""

    def _fit(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> Self:
        """Train one net at the strength that was asked for, and keep what was learned."""
        self._check_parameters()
        task = self._task(X, y, sensitive_features, sample_weight)
        self._warn_of_few_rows(len(task.rows) + (0 if task.validation is None else len(task.validation)))
        with own_randomness(task.generator, task.device):
            net, scaling = self._start(task)
            if self.lam is None:
                budget = BUDGET if self.budget is None else float(self.budget)
                done = self._path(task, net, scaling, budgets=[budget])[1]
                _tell_missed(done, budget)
            else:
                done = train(net, **self._call(task, scaling), lam=float(self.lam))
        self._keep(task, scaling, done)
        self.__dict__.pop("_stream", None)
        return self

    def _partial_fit(
        self, X: Any, y: Any, classes: NDArray[Any] | None, sensitive_features: Any, sample_weight: Any
    ) -> Self:
        """Train on the rows of one part, once, and keep what was learned."""
        self._check_parameters()
        self._check_parts()
        if "encoder_" in vars(self):
            validate_data(self, X, skip_check_array=True, reset=False)
        now = self.get_params(deep=False)
        stream: _Stream | None = vars(self).get("_stream")
        if stream is None or any(_differs(now[name], old) for name, old in stream.parameters.items()):
            stream, rows = self._new_stream(X, y, classes, sensitive_features, sample_weight)
        else:
            x = _read(X)
            problem = self._problem(x, y, sample_weight, classes)
            check_aligned(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
            rows = self._rows(x, problem, sensitive_features, sample_weight, later=True)
        if stream.task.rows.s is not None and (self._penalised or rows.s is not None):
            rows = replace(rows, s=_recoded(rows.s, stream.task.rows.s, stream.labels))
        # Lost if training fails in the middle: the next part then goes on from the weights before this one.
        self.__dict__.pop("_stream", None)
        scaled = stream.scaling.apply(rows).to(stream.task.device, torch.float32)
        stream.records.append(stream.passes.over(scaled))
        net = copy.deepcopy(stream.passes.net)
        history = tuple(stream.records)
        done = Trained(net, history, stream.passes.penalty, len(history) - 1)
        self._keep(stream.task, stream.scaling, done)
        self._stream = stream
        return self

    def _new_stream(
        self, X: Any, y: Any, classes: NDArray[Any] | None, sensitive_features: Any, sample_weight: Any
    ) -> tuple[_Stream, Rows]:
        task = self._task(X, y, sensitive_features, sample_weight, classes)
        penalty = task.penalty
        if classes is not None:
            penalty = _of_each_class(penalty, len(classes))
        with own_randomness(task.generator, task.device):
            net, scaling = self._start(task, again="encoder_" in vars(self))
        passes = Passes(
            net,
            task.problem.loss,
            scaling.apply(task.rows).to(task.device, torch.float32),
            lam=float(self.lam or 0.0),
            penalty=penalty,
            batch_size=int(self.batch_size),
            learning_rate=float(self.learning_rate),
            training=task.training,
            generator=task.generator,
        )
        one = torch.arange(1)
        problem = replace(task.problem, labels=None, class_weights=None)
        problem = replace(problem, y=None if problem.y is None else problem.y[one])
        kept = replace(task, rows=task.rows[one], problem=problem, penalty=penalty)
        return _Stream(kept, scaling, passes, self.get_params(deep=False)), task.rows

    def _check_parts(self) -> None:
        """Refuse what needs all rows at once."""
        if self.lam is None:
            raise ValueError(
                "'lam' must be given for partial_fit: a budget is a share of what an unconstrained model has "
                f"on all rows. Got {self._strength}. Choose lam by a fit on some of the rows."
            )
        if self.early_stopping:
            raise ValueError(
                "'early_stopping' must be False for partial_fit, which sets no rows aside. Got True. "
                "Judge the model on other rows between calls."
            )

    def _task(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        sample_weight: Any,
        classes: NDArray[Any] | None = None,
    ) -> _Task:
        """Let everything through the door, and set rows aside."""
        x = _read(X)
        problem = self._problem(x, y, sample_weight, classes)
        check_aligned(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        # The names of columns are read apart: a fit that fails must leave what an earlier one learned.
        columns = BaseEstimator()
        validate_data(columns, X, skip_check_array=True, reset=True)
        rows = self._rows(x, problem, sensitive_features, sample_weight)
        generator = to_generator(self.random_state)
        if generator.device.type != "cpu":
            raise ValueError(
                f"'random_state' must be a generator on the CPU. Got one on {generator.device}. "
                "Pass an integer."
            )
        training = self.training or Training()
        validation = None
        if self.early_stopping:
            least = MIN_BATCH if self._penalised else 2
            rows, validation = _split(rows, training.validation_fraction, least, generator)
        penalty = self._penalty(problem, rows, validation)
        device = torch.device(self.device)
        return _Task(problem, columns, rows, validation, penalty, generator, training, device)

    def _start(self, task: _Task, *, again: bool = False) -> tuple[Net, _Scalings]:
        """Return the net to begin with and the scales that it sees rows through."""
        inputs = task.rows.x.shape[1]
        if again or (self.warm_start and "encoder_" in vars(self)):
            self._check_again(inputs, task.problem)
            net, scaling = self._net_again(), self._scalings_again(task.rows, task.training.scaling)
        else:
            net = make_net(
                inputs,
                task.problem.outputs,
                encoder=self.encoder,
                head=task.problem.head,
                generator=task.generator,
            )
            scaling = _Scalings.fit(task.rows, task.problem, task.training.scaling)
        return net.to(device=task.device, dtype=torch.float32), scaling

    def _call(self, task: _Task, scaling: _Scalings) -> _Call:
        """Return what every kind of training is called with."""
        rows, validation = (
            None if part is None else scaling.apply(part).to(task.device, torch.float32)
            for part in (task.rows, task.validation)
        )
        assert rows is not None  # noqa: S101
        return {
            "loss": task.problem.loss,
            "rows": rows,
            "penalty": task.penalty,
            "epochs": int(self.epochs),
            "batch_size": int(self.batch_size),
            "learning_rate": float(self.learning_rate),
            "training": task.training,
            "generator": task.generator,
            "validation": validation,
        }

    def _path(
        self,
        task: _Task,
        net: Net,
        scaling: _Scalings,
        *,
        lams: Sequence[float] | None = None,
        budgets: Sequence[float] | None = None,
    ) -> list[Trained]:
        return train_path(net, **self._call(task, scaling), lams=lams, budgets=budgets)

    def _keep(self, task: _Task, scaling: _Scalings, done: Trained) -> None:
        """Keep what was learned, once all of it is there."""
        problem, rows = task.problem, task.rows
        trained = done.net.to(device="cpu", dtype=torch.float64).requires_grad_(False)
        width = encoded_width(trained.encoder, rows.x.shape[1])
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(task.columns.__dict__)
        self.encoder_, self.head_ = trained.encoder, trained.head
        self._n_features_out = width
        self.scaling_x_, self.scaling_s_ = scaling.x, scaling.s
        self.scaling_y_ = None if problem.y is None else scaling.y
        self.sensitive_names_ = None if rows.s is None else rows.s.names
        self.sensitive_kinds_ = None if rows.s is None else rows.s.kinds
        self.penalty_ = task.penalty if done.penalty is None else done.penalty
        self.history_ = [_record(record.to_dict(), problem.classes) for record in done.history]
        self.n_iter_ = len(done.history)
        self.best_epoch_ = done.best_epoch
        self.relative_dependence_ = done.relative
        if problem.classes is not None and problem.y is not None:
            self.classes_ = problem.classes

    def _rows(
        self,
        x: Tensor,
        problem: _Problem,
        sensitive_features: Any,
        sample_weight: Any,
        *,
        later: bool = False,
    ) -> Rows:
        """Return the rows; S may be constant in a later part of them."""
        n = len(x)
        s = self._read_sensitive(sensitive_features, n, later)
        weights = to_weights(sample_weight, n_rows=n)
        y = x if problem.y is None else problem.y
        rows = Rows(x, y, s, weights, problem.class_weights, problem.labels)
        if weights is not None and bool((weights == 0).any()):
            rows = rows[(weights > 0).nonzero().squeeze(-1)]  # such rows are not there
            varies = rows.s is None or bool((rows.s.values != rows.s.values[0]).any(dim=0).all())
            if self._penalised and not varies and not later:
                raise ValueError(
                    "'sensitive_features' must vary among the rows of positive weight. Got a single value. "
                    "Give weight to rows in which it differs."
                )
        if rows.weights is not None and bool((rows.weights == rows.weights[0]).all()):
            rows = replace(rows, weights=None)  # as good as none, and every estimator takes none
        if rows.weights is None:
            return rows
        by_class = 1.0 if rows.loss_weights is None else rows.loss_weights
        return replace(rows, loss_weights=rows.weights * by_class)

    def _penalty(self, problem: _Problem, rows: Rows, validation: Rows | None) -> Penalty | PenaltySum:
        if self.penalty is None:
            # No weighted unbiased estimator is derived.
            estimator: Estimator = "unbiased" if rows.weights is None else "biased"
            names = None if rows.s is None or len(rows.s.names) == 1 else rows.s.names
            if problem.y is None:
                least = min(len(part) for part in (rows, validation) if part is not None)
                return _code_penalty(
                    estimator, names, self.encoder, min(least, int(self.batch_size)), self.lam is None
                )
            if self.lam is None:
                return budget_penalty(estimator, names, classes=problem.classes is not None)
            return default_penalty(estimator, names)
        penalty = copy.deepcopy(self.penalty)
        other = problem.classes is None or problem.y is None
        if self._penalised and other and any(term.on == "probability" for _, term in penalty._pairs()):
            raise ValueError(
                "'penalty' must not be on probabilities where none are predicted. Got on='probability'. "
                "Use on='prediction', or a classifier."
            )
        if problem.classes is not None:
            codes = {label: float(code) for code, label in enumerate(problem.classes.tolist())}
            return penalty.relabel(codes)
        if penalty.needs_y and self._penalised:
            raise ValueError(
                "'penalty' must not be given levels of y where y is not a class. Got one that is. "
                "Leave 'given' out."
            )
        return penalty

    # Going on from an earlier fit: the same function, so the same columns, classes, layers and scales of X.

    def _check_again(self, inputs: int, problem: _Problem) -> None:
        if inputs != self.n_features_in_:
            raise ValueError(
                f"'X' must have {self.n_features_in_} columns as before for warm_start=True. Got {inputs}. "
                "Pass the same columns, or set warm_start=False."
            )
        before = vars(self).get("classes_")
        if before is not None and problem.classes is not None and before.tolist() != problem.classes.tolist():
            raise ValueError(
                "'y' must have the same classes as before for warm_start=True. Got others. "
                "Pass rows of all classes, or set warm_start=False."
            )
        new = make_net(
            inputs, problem.outputs, encoder=self.encoder, head=problem.head, generator=torch.Generator()
        )
        shapes = [
            {name: tuple(value.shape) for name, value in net.state_dict().items()}
            for net in (new, Net(self.encoder_, self.head_))
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "'encoder' must be as before for warm_start=True. Got other layers. "
                "Pass the same, or set warm_start=False."
            )

    def _scalings_again(self, rows: Rows, rule: Rule) -> _Scalings:
        y = self.scaling_x_ if isinstance(self, FRHSICEncoder) else self.scaling_y_
        s = None if rows.s is None else fit_sensitive(rows.s, rule, rows.weights)  # not in the function
        return _Scalings(self.scaling_x_, y, s)

    def _net_again(self) -> Net:
        net = Net(copy.deepcopy(self.encoder_), copy.deepcopy(self.head_)).requires_grad_(True)
        if isinstance(self.encoder, nn.Module):  # whose owner may have frozen some layers
            for parameter, own in zip(net.encoder.parameters(), self.encoder.parameters(), strict=True):
                parameter.requires_grad_(own.requires_grad)
        return net


class FRHSICClassifier(ClassifierMixin, _Adapter):  # type: ignore[misc]
    """A classifier whose representation is trained to depend less on continuous sensitive attributes.

    A network z = h(x), f(z) minimises the cross-entropy subject to a budget for the dependence of its score
    (or of z) on S, or the cross-entropy plus ``lam`` times that dependence: equation ``frhsic_objective`` of
    the paper. ``predict`` and ``transform`` never need S.

    Parameters
    ----------
    budget : float, optional
        The dependence that may be left, as a share of that of an unconstrained model, which is trained along.
        0.1 where neither a budget nor ``lam`` is given.
    lam : float, optional
        Instead of a budget: the strength of the penalty, which is not comparable between penalties or data.
        Only at 0 may ``fit`` go without ``sensitive_features``.
    penalty : Penalty, optional
        The dependence to lower, with the fairness notion. ``fit`` copies it into ``penalty_``. Labels in
        ``given={"y": label}`` are classes as they stand in y. None is, with a budget, normalised HSIC of the
        probabilities (of the prediction of a regression); with ``lam``, HSIC of the prediction under a linear
        kernel plus HSIC of Z under a scale-free Gaussian one.
    encoder : sequence of int or torch.nn.Module, default=(50, 50)
        Widths of the layers, the last one that of Z, or a module from ``(n, p)`` to ``(n, d)``.
    epochs : int, default=200
    batch_size : int, default=256
    learning_rate : float, default=1e-3
        Of Adam.
    early_stopping : bool, default=False
        Set rows aside and keep the weights of the epoch with the least loss + lam * penalty on them, or, with
        a budget, of the one with the least loss among those within it; see ``Training`` for how many rows and
        how long to wait.
    class_weight : None, "balanced" or dict, default=None
        Weights of the classes in the loss, not in the penalty.
    random_state : None, int or generator, default=None
    device : str or torch.device, default="cpu"
        Where to train. Predictions are computed in float64 on the CPU.
    warm_start : bool, default=False
        Go on from the weights of the last fit.
    training : Training, optional
        Schedule, clipping, scaling of X and S, checkpoints.

    Attributes
    ----------
    classes_ : ndarray
    encoder_, head_ : torch.nn.Module
    penalty_ : PenaltySum
        The copy that was trained with: scales of S fixed (for S as ``scaling_s_`` scales it), those of Z as
        ``Training(every=...)`` left them at the last epoch, classes as codes.
    history_ : list of dict
        One record for each epoch; ``skipped`` counts the batches in which a level of y was too small.
    relative_dependence_ : float or None
        With a budget: the dependence over that of the unconstrained model, on the rows trained on. A budget
        missed by more than 15 % is a ConvergenceWarning.
    best_epoch_, n_iter_ : int
    scaling_x_, scaling_s_ : Scaling

    Notes
    -----
    With ``sklearn.set_config(enable_metadata_routing=True)`` a Pipeline, ``cross_validate`` and
    ``GridSearchCV`` pass ``sensitive_features`` and ``sample_weight`` on to ``fit`` without being asked.
    Without routing a Pipeline takes ``frhsicclassifier__sensitive_features=...``, and a search hands on what
    is given to its ``fit``, but scorers get nothing.

    Examples
    --------
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(500, random_state=0)
    >>> model = FRHSICClassifier(lam=5.0, epochs=5, random_state=0)
    >>> model = model.fit(task.data, task.target, sensitive_features=task.sensitive_features)
    >>> model.predict_proba(task.data).shape
    (500, 2)
    """

    def __init__(
        self,
        *,
        budget: float | None = None,
        lam: float | None = None,
        penalty: Penalty | PenaltySum | None = None,
        encoder: Sequence[int] | nn.Module = (50, 50),
        epochs: int = 200,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        random_state: Any = None,
        device: str | torch.device = "cpu",
        warm_start: bool = False,
        training: Training | None = None,
    ) -> None:
        super().__init__(
            budget=budget,
            lam=lam,
            penalty=penalty,
            encoder=encoder,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            random_state=random_state,
            device=device,
            warm_start=warm_start,
            training=training,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array, scipy sparse matrix or frame of shape (n, p)
            Numbers; TableEncoder makes them from tables with categories and missing values. A sparse matrix
            is densified, up to 8 GB.
        y : array of shape (n,)
            Classes: numbers, strings or booleans.
        sensitive_features : array or frame of shape (n,) or (n, q), optional
            Numbers are continuous, strings, booleans and categories categorical; pass
            ``frhsic.data.to_sensitive(s, kinds={"zone": "categorical"})`` for codes that are no numbers.
        sample_weight : array of shape (n,), optional
            In the loss and in the penalty. Rows of weight zero are left out.
        """
        return self._fit(X, y, sensitive_features, sample_weight)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        classes: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Go on training with other rows: one pass over them, in minibatches.

        Scales of X and S are those of the first call, so that its rows should be like all others, thousands
        of them, and those of any call in random order (:func:`frhsic.sources.shuffled`). Needs ``lam``;
        ``epochs`` is not read. ``history_`` has a record for each call.

        Parameters
        ----------
        X, y, sensitive_features
            As for ``fit``.
        classes : array of shape (k,), optional
            All classes that y will ever have. Must be passed to the first call.
        sample_weight : array of shape (n,), optional
            Compared between rows of one call.

        Examples
        --------
        >>> from frhsic.datasets import make_u_shaped
        >>> task, model = make_u_shaped(500, random_state=0), FRHSICClassifier(lam=5.0, random_state=0)
        >>> for rows in np.split(np.arange(500), 2):
        ...     model = model.partial_fit(task.data[rows], task.target[rows], classes=[0, 1],
        ...                               sensitive_features=task.sensitive_features[rows])
        >>> model.n_iter_
        2
        """
        if isinstance(self.class_weight, str):
            raise ValueError(
                "'class_weight' must be None or a dict for partial_fit: shares of classes are known once all "
                f"rows are. Got {self.class_weight!r}. Pass the weights."
            )
        known = _known_classes(classes, vars(self).get("classes_"))
        return self._partial_fit(X, y, known, sensitive_features, sample_weight)

    def _problem(
        self, x: Tensor, y: Any, sample_weight: Any, classes: NDArray[Any] | None = None
    ) -> _Problem:
        classes, codes = _classes(self, y, len(x), classes)
        if len(classes) < 2:
            raise ValueError(
                "'y' must have at least two classes. Got only 1 class. Pass rows of another class."
            )
        binary = len(classes) == 2
        labels = torch.from_numpy(codes)
        weights = to_weights(sample_weight, n_rows=len(x))
        return _Problem(
            y=labels.double() if binary else labels,
            loss=binary_cross_entropy if binary else cross_entropy,
            outputs=1 if binary else len(classes),
            labels=labels,
            classes=classes,
            class_weights=_class_weights(self.class_weight, classes, codes, weights),
        )

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the logits: ``(n,)`` of the second class, or ``(n, k)`` for k > 2 classes."""
        logits = self._forward(X).numpy()
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, ``(n, k)``."""
        logits = self._forward(X)
        if len(self.classes_) == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return logits.softmax(dim=1).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of ``predict(X)``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        """
        check_aligned(X=X, y=y, sample_weight=sample_weight)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        most = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most]


class FRHSICRegressor(RegressorMixin, _Adapter):  # type: ignore[misc]
    """A regression whose representation is trained to depend less on continuous sensitive attributes.

    The squared error of the scaled target is minimised within a budget, or plus ``lam`` times the penalty;
    all else is as for :class:`FRHSICClassifier`. ``Training(scaling=...)`` says how the target is scaled
    (and with it what ``lam`` means); predictions come in the units of y.

    Parameters
    ----------
    budget, lam, penalty, encoder, epochs, batch_size, learning_rate, early_stopping, random_state, device, \
warm_start, training
        See :class:`FRHSICClassifier`. The penalty may not be given levels of y.

    Examples
    --------
    >>> import numpy as np
    >>> s = np.linspace(-1, 1, 300)
    >>> X = np.column_stack([s, np.sin(9 * s)])
    >>> model = FRHSICRegressor(lam=0, epochs=50, random_state=0).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,)
            Numbers.
        sensitive_features : array or frame of shape (n,) or (n, q), optional
        sample_weight : array of shape (n,), optional
        """
        return self._fit(X, y, sensitive_features, sample_weight)

    def partial_fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Go on training with other rows, as :meth:`FRHSICClassifier.partial_fit` does.

        The scale of y, too, is that of the first call.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As for ``fit``.
        """
        return self._partial_fit(X, y, None, sensitive_features, sample_weight)

    def _problem(
        self,
        x: Tensor,
        y: Any,
        sample_weight: Any,  # noqa: ARG002
        classes: NDArray[Any] | None = None,  # noqa: ARG002
    ) -> _Problem:
        return _Problem(to_vector(_column(self, y), n_rows=len(x)), squared_error, 1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of ``predict(X)``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        """
        check_aligned(X=X, y=y, sample_weight=sample_weight)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the prediction of each row, ``(n,)``."""
        prediction = self._forward(X)
        assert self.scaling_y_ is not None  # noqa: S101
        return self.scaling_y_.invert(prediction).squeeze(-1).numpy()


class FRHSICEncoder(_Adapter):
    """A representation from which X can be rebuilt and that depends less on sensitive attributes.

    The mean squared error of the rebuilt, scaled columns is minimised within a budget, or plus ``lam`` times
    the penalty; no target is needed. For a representation that serves a known target use
    ``FRHSICClassifier(...).transform``.

    Parameters
    ----------
    budget, lam, penalty, encoder, epochs, batch_size, learning_rate, early_stopping, random_state, device, \
warm_start, training
        See :class:`FRHSICClassifier`. The decoder has the layers of the encoder in reverse (one linear layer
        for an encoder that is a module). ``on="prediction"`` is what is rebuilt. The default penalty is HSIC
        with a scale-free Gaussian kernel on Z, whitened where a batch has more than twice as many rows as Z
        has columns: the decoder would undo any other shrinking.

    Examples
    --------
    >>> import numpy as np
    >>> s = np.linspace(-1, 1, 300)
    >>> X = np.column_stack([s, np.sin(9 * s)])
    >>> FRHSICEncoder(lam=1.0, encoder=(8, 2), epochs=2).fit_transform(X, sensitive_features=s).shape
    (300, 2)
    """

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,), optional
            Classes, read only where the penalty is given levels of y.
        sensitive_features : array or frame of shape (n,) or (n, q), optional
        sample_weight : array of shape (n,), optional
        """
        return self._fit(X, y, sensitive_features, sample_weight)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        classes: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Go on training with other rows, as :meth:`FRHSICClassifier.partial_fit` does.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As for ``fit``.
        classes : array of shape (k,), optional
            All classes that y will ever have, where the penalty is given levels of y.
        """
        known = None
        if self.penalty is not None and self.penalty.needs_y:
            stream: _Stream | None = vars(self).get("_stream")
            known = _known_classes(classes, None if stream is None else stream.task.problem.classes)
        return self._partial_fit(X, y, known, sensitive_features, sample_weight)

    def _problem(
        self,
        x: Tensor,
        y: Any,
        sample_weight: Any,  # noqa: ARG002
        classes: NDArray[Any] | None = None,
    ) -> _Problem:
        labels = None
        if self.penalty is not None and self.penalty.needs_y:
            classes, codes = _classes(self, y, len(x), classes)
            labels = torch.from_numpy(codes)
        widths = () if isinstance(self.encoder, nn.Module) else tuple(self.encoder)
        return _Problem(None, squared_error, x.shape[1], widths[-2::-1], labels, classes)

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Return minus the mean squared error of the rebuilt, scaled columns.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : ignored
            For searches, which pass it.
        sample_weight : array of shape (n,), optional
        """
        check_aligned(X=X, sample_weight=sample_weight)
        rebuilt = self._forward(X).split(_CHUNK)
        parts = zip(rebuilt, self._parts(X), strict=True)
        errors = torch.cat([(f - self.scaling_x_.apply(x)).square().mean(dim=1) for f, x in parts])
        weights = to_weights(sample_weight, n_rows=len(errors))
        return -float(errors.mean() if weights is None else weights @ errors / weights.sum())


Model = TypeVar("Model", FRHSICClassifier, FRHSICRegressor, FRHSICEncoder)


def fit_path(
    estimator: Model,
    X: Any,
    y: Any = None,
    *,
    lams: Sequence[float] | None = None,
    budgets: Sequence[float] | None = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
) -> list[Model]:
    """Return one fitted copy of an estimator for each strength, trained in one stacked pass.

    All copies start from the same weights and see the same batches; each becomes what ``fit`` would have made
    of it with the same ``random_state`` (but for rounding, and for modules that draw random numbers, such as
    dropout). Nine take a third to a half of the time of nine fits.

    Parameters
    ----------
    estimator : FRHSICClassifier, FRHSICRegressor or FRHSICEncoder
        Its ``lam`` and ``budget`` are not read.
    X, y, sensitive_features, sample_weight
        As for ``fit``.
    lams : sequence of float, optional
        Strengths of the penalty; 0 is no penalty.
    budgets : sequence of float, optional
        Shares of the dependence of the unconstrained model, which comes first in what is returned, with ``lam
        = 0``: one model more than budgets. It has the schedule of the others, a falling rate by default.
        Whether a budget was kept is in ``relative_dependence_``; only ``fit`` warns.

    Examples
    --------
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(300, random_state=0)
    >>> models = fit_path(FRHSICClassifier(epochs=2), task.data, task.target, budgets=[0.5, 0.1],
    ...                   sensitive_features=task.sensitive_features)
    >>> [model.budget for model in models]
    [None, 0.5, 0.1]
    """
    if not isinstance(estimator, _Adapter):
        raise TypeError(
            "'estimator' must be a FRHSICClassifier, FRHSICRegressor or FRHSICEncoder. "
            f"Got {type(estimator).__name__}. Fit the earlier steps of a Pipeline first."
        )
    lams, budgets = _strengths(lams, "lams"), _strengths(budgets, "budgets")
    check_strengths(lams, budgets)
    settings: list[tuple[float | None, float | None]] = [(lam, None) for lam in lams or ()]
    if budgets is not None:
        settings = [(0.0, None)] + [(None, budget) for budget in budgets]
    models = [clone(estimator).set_params(lam=lam, budget=budget) for lam, budget in settings]
    for model in models:
        model._check_parameters()
    # The strongest speaks for all where it matters whether there is a penalty at all.
    first = max(models, key=lambda model: (model.lam is None, model.lam or 0.0))
    if estimator.warm_start:
        first.__dict__.update({name: value for name, value in vars(estimator).items() if name.endswith("_")})
    task = first._task(X, y, sensitive_features, sample_weight)
    with own_randomness(task.generator, task.device):
        net, scaling = first._start(task)
        lams, budgets = (None if part is None else list(map(float, part)) for part in (lams, budgets))
        path = first._path(task, net, scaling, lams=lams, budgets=budgets)
    for model, done in zip(models, path, strict=True):
        model._keep(task, scaling, done)
    return models


def _strengths(values: Any, name: str) -> list[float] | None:
    """Return a list, also of an array; each number is checked where it is set."""
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str) or any(value is None for value in values):
        raise TypeError(f"'{name}' must be a sequence of numbers. Got {values!r}. Write {name}=[0.5, 0.1].")
    return list(values)


def _read(X: Any) -> Tensor:
    """Let X through the door; a single column or a dict is no table to scikit-learn."""
    if isinstance(X, Mapping) and not issparse(X):
        raise TypeError("'X' must be an array or a frame. Got a dict. Pass a frame of these columns.")
    shape: tuple[int, ...] | None = None
    if nw.dependencies.is_into_series(X):
        shape = (len(X),)
    elif isinstance(X, (np.ndarray, Tensor, list, tuple)):
        with contextlib.suppress(ValueError):  # rows of different lengths: the door says so
            shape = tuple(np.shape(X))
    if shape is not None and len(shape) == 1:
        raise ValueError(
            "'X' must be two-dimensional, a row for each case. Got one dimension. Reshape your data: "
            "X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row."
        )
    if shape is not None and shape[1:] == (0,):
        raise ValueError(
            f"'X' must have at least one column. Got 0 feature(s) (shape={shape}) while a minimum "
            "of 1 is required. Pass a column."
        )
    if isinstance(X, np.ndarray) and np.iscomplexobj(X):
        raise ValueError("'X' must be real. Got complex numbers. Complex data not supported.")
    return to_matrix(X)


def _refuse_many_categories(s: Sensitive) -> None:
    """Refuse labels so many that a kernel which only tells equal from different sees next to nothing."""
    for name, labels in zip(s.names, s.categories or (None,) * len(s.names), strict=True):
        if labels is not None and len(labels) > _MOST_CATEGORIES:
            raise ValueError(
                f"'sensitive_features' must have at most {_MOST_CATEGORIES} categories in a column. "
                f"Got {len(labels)} in '{name}'. Convert text to numbers if it is one, or group the labels."
            )


def _code_penalty(
    estimator: Estimator,
    columns: Sequence[str] | None,
    encoder: Sequence[int] | nn.Module,
    n: int,
    normalized: bool,
) -> Penalty:
    """Return the default of the encoder: everything about Z, whitened where batches of n rows allow it.

    The decoder undoes any linear map of Z, so that only a kernel blind to such maps holds it to its word.
    """
    whiten = not isinstance(encoder, nn.Module) and n >= 2 * (tuple(encoder)[-1] + 2)
    measure = HSIC(Gaussian("scale-free", whiten=whiten), estimator=estimator, normalized=normalized)
    return Penalty(measure, columns=columns)


def _split(rows: Rows, fraction: float, least: int, generator: torch.Generator) -> tuple[Rows, Rows]:
    """Return the rows to train on and those set aside, at random."""
    n = len(rows)
    aside = round(fraction * n)
    if aside < least or n - aside < least:
        raise ValueError(
            f"'X' must have enough rows to set {least} aside for early stopping and to train on as many. "
            f"Got {n}, of which {aside} would be set aside. Use early_stopping=False, more rows, or another "
            "Training(validation_fraction=...)."
        )
    order = torch.randperm(n, generator=generator)
    if rows.labels is not None:
        # The same share of each class on both sides: by the place of a row among those of its class.
        place = torch.zeros(n, dtype=torch.float64)
        for level in split_labels(rows.labels[order]).kept:
            size = len(level.rows)
            place[level.rows] = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        order = order[place.argsort(stable=True)]
    parts = rows[order[aside:]], rows[order[:aside]]
    if any(part.loss_weights is not None and not part.loss_weights.sum() > 0 for part in parts):
        raise ValueError(
            "'class_weight' must give weight to some of the rows set aside for early stopping and to some of "
            "the others. Got none in one part. Use early_stopping=False or more rows."
        )
    return parts


def _column(estimator: object, y: Any) -> NDArray[Any]:
    """Return y as one column, or say what it must be."""
    if y is None:
        raise ValueError(
            f"'y' must be passed: {type(estimator).__name__} requires y to be passed, but the target y is "
            "None. Pass one value for each row."
        )
    return column_or_1d(y, warn=True)


def _known_classes(classes: Any, before: NDArray[Any] | None) -> NDArray[Any]:
    """Return the classes of a model that learns from parts, of which any may lack some."""
    if classes is None and before is None:
        raise ValueError(
            "'classes' must be passed on the first call to partial_fit, whose rows need not have them all. "
            "Got None. Pass all classes that y will ever have: classes=[0, 1]."
        )
    if classes is None or before is None:
        return np.unique(column_or_1d(before if classes is None else classes))
    if np.unique(column_or_1d(classes)).tolist() != before.tolist():
        raise ValueError(
            f"'classes' must be those of the first call to partial_fit, {before.tolist()[:5]}. Got others. "
            "Leave 'classes' out, or begin with a new model."
        )
    return before


def _classes(
    estimator: object, y: Any, n: int, known: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the sorted classes, or those that are known, and the code of each row."""
    column = _column(estimator, y)
    if len(column) != n:
        raise ValueError(
            f"'y' must have {n} rows like 'X'. Got {len(column)}. Drop or align the missing rows."
        )
    if column.dtype == object and len({isinstance(label, str) for label in column.tolist()}) > 1:
        raise ValueError(
            "'y' must hold classes of one type, none missing. Got text and something else. "
            "Drop rows without a class."
        )
    try:
        check_classification_targets(column)
    except ValueError as error:
        raise ValueError(
            f"'y' must hold classes. Got something else: {str(error).rstrip('.')}. "
            "Pass labels, or use a regressor."
        ) from None
    classes, codes = np.unique(column, return_inverse=True)
    if known is None:
        return classes, codes.astype(np.int64)
    code = {label: j for j, label in enumerate(known.tolist())}
    unknown = [label for label in classes.tolist() if label not in code]
    if unknown:
        raise ValueError(
            f"'y' must hold known classes, {known.tolist()[:5]}. Got {unknown[:5]}. "
            "Name all classes in the first call to partial_fit."
        )
    places = np.array([code[label] for label in classes.tolist()], dtype=np.int64)
    return known, places[codes]


def _of_each_class(penalty: Penalty | PenaltySum, count: int) -> PenaltySum:
    """Return the penalty with a term for each class where it is given all of them: a part may lack some."""
    every = {"y": [float(code) for code in range(count)]}
    pairs = penalty._pairs()
    terms = [
        Penalty(
            term.dependence,
            on=term.on,
            given=every if term.given == "y" else term.given,
            columns=term.columns,
        )
        for _, term in pairs
    ]
    return PenaltySum(terms, [factor for factor, _ in pairs])


def _recoded(s: Sensitive | None, first: Sensitive, labels: dict[str, list[Label]]) -> Sensitive:
    """Return S of a part with a code for each label that is the same in all parts."""
    if s is None or s.names != first.names or s.kinds != first.kinds:
        got = "none" if s is None else ", ".join(map("{} ({})".format, s.names, s.kinds))
        raise ValueError(
            "'sensitive_features' must have the columns of the first call, "
            f"{', '.join(map('{} ({})'.format, first.names, first.kinds))}. Got {got}. "
            "Pass the same columns; to_sensitive(s, kinds=...) says what they are."
        )
    values = s.values.clone()
    for j, (name, own) in enumerate(zip(s.names, s.categories or (None,) * len(s.names), strict=True)):
        if own is not None:
            known = labels.setdefault(name, [])
            known += [label for label in own if label not in known]
            codes = torch.tensor([known.index(label) for label in own], dtype=values.dtype)
            values[:, j] = codes[values[:, j].long()]
    categories = tuple(tuple(labels[name]) if name in labels else None for name in s.names)
    return Sensitive(values, s.names, s.kinds, categories)


def _differs(now: object, before: object) -> bool:
    """Tell whether a parameter was set anew; modules and generators are themselves only."""
    plain = (numbers.Number, str, tuple, list, dict, Training, torch.device)
    return now is not before and not (isinstance(now, plain) and now == before)


def _class_weights(
    class_weight: Any, classes: NDArray[Any], codes: NDArray[np.int64], weights: Tensor | None
) -> Tensor | None:
    """Return the weight of the class of each row; "balanced" counts the rows that are there."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        there = codes if weights is None else codes[weights.numpy() > 0]
        counts = np.bincount(there, minlength=len(classes))
        by_class = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
    elif isinstance(class_weight, Mapping):
        names = classes.tolist()
        unknown = sum(label not in names for label in class_weight)
        if unknown:
            raise ValueError(
                f"'class_weight' must have classes of y as keys. Got {unknown} others. Correct the keys."
            )
        by_class = np.array([class_weight.get(label, 1.0) for label in names], dtype=np.float64)
        if not (np.isfinite(by_class).all() and (by_class >= 0).all() and by_class.any()):
            raise ArgumentError(
                "class_weight", "hold non-negative numbers, not all zero", "others", "Correct them."
            )
    else:
        raise ValueError(
            f"'class_weight' must be None, 'balanced' or a dict. Got {class_weight!r}. Leave it out."
        )
    return torch.from_numpy(by_class[codes])


def _record(record: dict[str, Any], classes: NDArray[Any] | None) -> dict[str, Any]:
    """Return a record of the history with classes in the place of their codes."""
    if classes is not None:
        names = classes.tolist()
        for key in ("skipped", "validation_skipped"):
            record[key] = tuple((names[int(code)], count) for code, count in record[key])
    return record


def _tell_missed(done: Trained, budget: float) -> None:
    """Warn where the dependence that is left is not what was asked for, or where nothing else is left."""
    if done.relative is None:
        warnings.warn(
            "The unconstrained model shows no dependence on these rows: a share of it means nothing. "
            "Pass lam=0.",
            ConvergenceWarning,
            stacklevel=4,
        )
    elif done.relative > MET * budget:
        warnings.warn(
            f"The model has {done.relative:.3g} of the dependence of the unconstrained one, above its budget "
            f"of {budget:g}. Train for more epochs, with larger batches, or allow a larger budget.",
            ConvergenceWarning,
            stacklevel=4,
        )
    first, kept = done.history[0].loss, done.history[done.best_epoch].loss
    if kept > 1.1 * first:
        warnings.warn(
            f"The loss ended at {kept:.3g}, above the {first:.3g} of the first epoch: a budget of {budget:g} "
            "leaves nothing to learn from these rows. Allow a larger budget, or train with larger batches.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
