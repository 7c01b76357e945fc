"""What the three estimators share: the constructor, training, the representation."""

from __future__ import annotations

import copy
import numbers
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, ClassVar, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import Label, check_aligned, to_generator
from frhsic.engine.budget import describe_share
from frhsic.engine.limits import describe_missed
from frhsic.engine.nets import Net, encoded_width, hold, make_net, send
from frhsic.engine.options import Options, Training
from frhsic.engine.record import Record, Trained
from frhsic.engine.rows import MIN_BATCH, Rows
from frhsic.engine.run import own_randomness
from frhsic.engine.train import Passes
from frhsic.estimators._parameters import check_parameters, check_partial
from frhsic.estimators._scaling import Scalings, fit_sensitive
from frhsic.estimators._task import Problem, Task, choose_default
from frhsic.estimators.inputs import (
    Constraint,
    Inputs,
    choose_penalty,
    choose_share,
    hold_out,
    make_rows,
    read_x,
    recode,
    warn_constant,
)
from frhsic.penalty import Penalty, PenaltySum

_CHUNK: Final = 65_536  # rows that a prediction holds at a time
_FEW_ROWS: Final = 10  # below, a penalty warns


@dataclass(eq=False)
class _Stream:
    """What ``partial_fit`` continues with: the task without its rows, the scales, and the training."""

    task: Task
    scalings: Scalings
    passes: Passes
    parameters: dict[str, Any]
    labels: dict[str, list[Label]] = field(default_factory=dict)  # of categories of S, in the order of codes
    records: list[Record] = field(default_factory=list)


class BaseModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """An encoder with a head, trained with a penalty; subclasses say for which problem."""

    # Pipelines and searches with metadata routing pass these on without being asked.
    __metadata_request__fit: ClassVar = {"sensitive_features": True, "sample_weight": True}
    __metadata_request__partial_fit: ClassVar = {"sensitive_features": True, "sample_weight": True}
    __metadata_request__score: ClassVar = {"sample_weight": True}

    def __init__(
        self,
        *,
        budget: float | None = None,
        lam: float | None = None,
        limit: Mapping[str, float | Mapping[float, float]] | None = None,
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
        self.limit = limit
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

    @abstractmethod
    def _problem(self, x: Tensor, inputs: Inputs) -> Problem:
        """Return the target, the loss and the layers of the head."""

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the representation Z of each row, shape ``(n, d)``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        """
        return torch.cat([z for _, z in self._encode(X)]).numpy()

    @torch.inference_mode()
    def _forward(self, X: Any) -> Tensor:
        """Return what the head makes of each row, chunk by chunk.

        Without the noise of a channel: a score is that of one person, whatever rows stand beside.
        """
        check_is_fitted(self, "encoder_")
        parts = (self.encoder_(self.scaling_x_.apply(part)) for part in self._chunks(X))
        return torch.cat([self.head_(hold(z) if self.noise_ else z) for z in parts])

    @torch.inference_mode()
    def _encode(self, X: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield scaled rows and their Z, with the noise of a channel.

        It is drawn from ``random_state`` and the rows: equal tables have equal Z, and another table has other
        noise, so that no difference of two of them is without it.
        """
        check_is_fitted(self, "encoder_")
        seeds = to_generator(self.random_state) if self.noise_ else None
        for part in self._chunks(X):
            x, own = self.scaling_x_.apply(part), None
            if seeds is not None:
                key = torch.randint(2**63 - 1, (), generator=seeds).numpy().tobytes()
                digest = blake2b(x.numpy().tobytes(), key=key, digest_size=8).digest()
                own = torch.Generator().manual_seed(int.from_bytes(digest) >> 1)
            yield x, send(self.encoder_(x), self.noise_, own)

    @property
    def _noise(self) -> float:
        """The noise to train with."""
        return 0.0 if self.training is None else float(self.training.noise)

    def _chunks(self, X: Any) -> Iterator[Tensor]:
        """Yield X as a matrix, some rows at a time."""
        whole = None if issparse(X) and X.ndim == 2 and X.shape[0] else read_x(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        if whole is not None:
            yield from whole.split(_CHUNK)
            return
        rows = X.tocsr()  # only these rows are ever dense
        for start in range(0, rows.shape[0], _CHUNK):
            yield read_x(rows[start : start + _CHUNK])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _constraint(self) -> Constraint:
        return Constraint.of(self.lam, self.budget, self.limit)

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _fit(self, inputs: Inputs) -> Self:
        """Train one net with the penalty weight or the budget, and keep what was learned."""
        self._check_parameters()
        task = self._task(inputs)
        n = len(task.rows) + (0 if task.validation is None else len(task.validation))
        if self._constraint.penalised and n < _FEW_ROWS:
            few = "the dependence on sensitive features of so few is mostly chance"
            acts = f"{self._constraint} acts on chance too. Pass more rows, hundreds if there are."
            warnings.warn(f"'X' has {n} rows to train on: {few}, and {acts}", stacklevel=3)
        missed: list[str] = []
        with own_randomness(task.generator, task.device):
            net, scalings = self._start(task)
            if self._constraint.limit is not None:
                options = task.limit([self._constraint.limit], scalings)
                (done,) = task.train(net, scalings, options, path=True)
                kept = done.history[done.best_epoch].loss
                missed = describe_missed(done.reached, kept, task.constant_loss(scalings), _longer("limit"))
            elif self.lam is None:
                budget = self._constraint.share
                done = task.train(net, scalings, replace(task.options, budgets=[budget]), path=True)[1]
                losses = done.history[0].loss, done.history[done.best_epoch].loss
                missed = describe_share(done.relative, budget, losses, _longer("budget"))
            else:
                lams = [float(self.lam)]
                (done,) = task.train(net, scalings, replace(task.options, lams=lams), path=False)
        for message in missed:
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        self._keep(task, scalings, done)
        self.__dict__.pop("_stream", None)
        return self

    def _partial_fit(self, inputs: Inputs) -> Self:
        """Train on the rows of one part, once, and keep what was learned."""
        self._check_parameters()
        check_partial(self)
        if "encoder_" in vars(self):
            validate_data(self, inputs.X, skip_check_array=True, reset=False)
        now = self.get_params(deep=False)
        stream: _Stream | None = vars(self).get("_stream")
        if stream is None or any(_differs(now[name], old) for name, old in stream.parameters.items()):
            stream, rows = self._new_stream(inputs)
        else:
            _, rows = self._read(inputs, later=True)
        if stream.task.rows.s is not None and (self._constraint.penalised or rows.s is not None):
            rows = replace(rows, s=recode(rows.s, stream.task.rows.s, stream.labels))
        # Lost if training fails in the middle: the next part then continues from the weights before this one.
        self.__dict__.pop("_stream", None)
        stream.records.append(stream.passes.train_on(stream.task.scale(rows, stream.scalings)))
        passes, history = stream.passes, tuple(stream.records)
        done = Trained(copy.deepcopy(passes.net), history, passes.penalty, len(history) - 1)
        self._keep(stream.task, stream.scalings, done)
        self._stream = stream
        return self

    def _new_stream(self, inputs: Inputs) -> tuple[_Stream, Rows]:
        task = self._task(inputs)
        options = replace(task.options, lams=[float(self.lam or 0.0)])
        if inputs.classes is not None and options.penalty is not None:
            codes = {float(code): float(code) for code in range(len(inputs.classes))}
            options = replace(options, penalty=options.penalty.relabel(codes, each=True))
        with own_randomness(task.generator, task.device):
            net, scalings = self._start(task, again="encoder_" in vars(self))
        rows = task.scale(task.rows, scalings)
        passes = Passes(net, task.problem.loss, rows, options, generator=task.generator)
        one = torch.arange(1)  # which copies a row, where a slice would hold on to all of them
        y = None if task.problem.y is None else task.problem.y[one]
        problem = replace(task.problem, y=y, labels=None, class_weights=None)
        kept = replace(task, rows=task.rows[one], problem=problem, options=options)
        return _Stream(kept, scalings, passes, self.get_params(deep=False)), task.rows

    def _read(self, inputs: Inputs, *, later: bool = False) -> tuple[Problem, Rows]:
        """Convert and check the arguments of ``fit``, or of a later ``partial_fit``."""
        x = read_x(inputs.X)
        problem = self._problem(x, inputs)
        check_aligned(**inputs.columns)
        return problem, make_rows(
            x,
            x if problem.y is None else problem.y,
            inputs,
            self._constraint,
            labels=problem.labels,
            class_weights=problem.class_weights,
            later=later,
        )

    def _task(self, inputs: Inputs) -> Task:
        """Convert and check the arguments of ``fit``, and hold out rows."""
        problem, rows = self._read(inputs)
        if problem.y is not None and problem.labels is None:
            warn_constant(problem.y)
        # The names of columns are read apart: a fit that fails must leave what an earlier one learned.
        columns = BaseEstimator()
        validate_data(columns, inputs.X, skip_check_array=True, reset=True)
        constraint = self._constraint
        generator = to_generator(self.random_state)
        if generator.device.type != "cpu":
            got = f"one on {generator.device}"
            raise ArgumentError("random_state", "be a generator on the CPU", got, "Pass an integer.")
        training = self.training or Training()
        validation = None
        if self.early_stopping:
            least = MIN_BATCH if constraint.penalised else 2
            rows, validation = hold_out(rows, training.validation_fraction, least, generator)
        watched = validation
        share = choose_share(training, len(rows)) if constraint.limit is not None else 0.0
        if share > 0 and validation is None:
            rows, watched = hold_out(rows, share, MIN_BATCH, generator)
        if self.penalty is None:
            fewest = min(len(part) for part in (rows, validation) if part is not None)
            n = min(fewest, int(self.batch_size))
            penalty = choose_default(problem, rows, constraint, self.encoder, n)
        else:
            penalty = choose_penalty(
                self.penalty, problem.classes, constraint, predicted=problem.y is not None
            )
        options = Options(
            penalty,
            epochs=int(self.epochs),
            batch_size=int(self.batch_size),
            learning_rate=float(self.learning_rate),
            training=training,
        )
        device = torch.device(self.device)
        return Task(problem, columns, rows, validation, options, generator, device, watched)

    def _start(self, task: Task, *, again: bool = False) -> tuple[Net, Scalings]:
        """Return the net to begin with and the scales of the rows that it sees."""
        problem = task.problem
        if again or (self.warm_start and "encoder_" in vars(self)):
            self._check_again(task.rows.x.shape[1], problem)
            net, scalings = self._net_again(), self._scalings_again(task)
        else:
            net = self._make_net(task.rows.x.shape[1], problem, task.generator)
            scalings = problem.fit_scalings(task.rows, task.options)
        return net.to(device=task.device, dtype=torch.float32), scalings

    def _make_net(self, inputs: int, problem: Problem, generator: torch.Generator) -> Net:
        layers: dict[str, Any] = {"encoder": self.encoder, "head": problem.head, "noise": self._noise}
        return make_net(inputs, problem.outputs, **layers, generator=generator)

    def _keep(self, task: Task, scalings: Scalings, done: Trained) -> None:
        """Set the attributes of a fitted model, once all of them are known."""
        problem, s = task.problem, task.rows.s
        trained = done.net.to(device="cpu", dtype=torch.float64).requires_grad_(False)
        width = encoded_width(trained.encoder, task.rows.x.shape[1])
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(task.columns.__dict__)
        self.encoder_, self.head_, self.noise_ = trained.encoder, trained.head, float(trained.noise)
        self._n_features_out = width
        self.scaling_x_, self.scaling_s_ = scalings.x, scalings.s
        self.scaling_y_ = None if problem.y is None else scalings.y
        self.sensitive_names_ = None if s is None else s.names
        self.sensitive_kinds_ = None if s is None else s.kinds
        self.penalty_ = task.options.penalty if done.penalty is None else done.penalty
        self.history_ = [_name_classes(record.to_dict(), problem.classes) for record in done.history]
        self.n_iter_ = len(done.history)
        self.best_epoch_ = done.best_epoch
        self.relative_dependence_ = done.relative
        self.reached_ = done.reached
        if problem.classes is not None and problem.y is not None:
            self.classes_ = problem.classes

    # Continuing from an earlier fit: the same function, so the same columns, classes, layers, scales of X.

    def _check_again(self, inputs: int, problem: Problem) -> None:
        if inputs != self.n_features_in_:
            must = f"have {self.n_features_in_} columns as before for warm_start=True"
            raise ArgumentError("X", must, inputs, "Pass the same columns, or set warm_start=False.")
        before = vars(self).get("classes_")
        if before is not None and problem.classes is not None and before.tolist() != problem.classes.tolist():
            must = "have the same classes as before for warm_start=True"
            raise ArgumentError("y", must, "others", "Pass rows of all classes, or set warm_start=False.")
        nets = self._make_net(inputs, problem, torch.Generator()), Net(self.encoder_, self.head_)
        new, old = ({name: x.shape for name, x in net.state_dict().items()} for net in nets)
        if new != old:
            must = "be as before for warm_start=True"
            raise ArgumentError("encoder", must, "other layers", "Pass the same, or set warm_start=False.")

    def _scalings_again(self, task: Task) -> Scalings:
        y = self.scaling_x_ if task.problem.y is None else self.scaling_y_
        s, rule = task.rows.s, task.options.training.scaling  # S is not in the function
        return Scalings(self.scaling_x_, y, None if s is None else fit_sensitive(s, rule, task.rows.weights))

    def _net_again(self) -> Net:
        layers = copy.deepcopy(self.encoder_), copy.deepcopy(self.head_)
        net = Net(*layers, self._noise).requires_grad_(True)
        if isinstance(self.encoder, nn.Module):  # whose owner may have frozen some layers
            for parameter, own in zip(net.encoder.parameters(), self.encoder.parameters(), strict=True):
                parameter.requires_grad_(own.requires_grad)
        return net


def _differs(now: object, before: object) -> bool:
    """Return whether a parameter was set anew; modules and generators are compared by identity."""
    plain = (numbers.Number, str, tuple, list, dict, Training, torch.device)
    return now is not before and not (isinstance(now, plain) and now == before)


def _name_classes(record: dict[str, Any], classes: NDArray[Any] | None) -> dict[str, Any]:
    """Return a record of the history with classes in the place of their codes."""
    if classes is not None:
        names = classes.tolist()
        for key in ("skipped", "validation_skipped"):
            record[key] = tuple((names[int(code)], count) for code, count in record[key])
    return record


def _longer(what: str) -> str:
    return f"Train for more epochs, with larger batches, or allow a larger {what}."
