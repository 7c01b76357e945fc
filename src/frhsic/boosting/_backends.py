"""LightGBM and XGBoost: a booster trained with a gradient of our own, that is an ordinary one afterwards."""

from __future__ import annotations

import contextlib
import difflib
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic.data import take_rows

Floats: TypeAlias = NDArray[np.float64]
# Takes raw scores (n, k) of the training rows and of the held-out rows, and returns gradient and Hessian.
Step: TypeAlias = Callable[[Floats, Floats | None], tuple[Floats, Floats]]
# Takes the number of rounds made and raw scores of the held-out rows; True stops.
After: TypeAlias = Callable[[int, Floats | None], bool]
Name: TypeAlias = Literal["lightgbm", "xgboost"]

# Parameters that are arguments of the estimator, by all their names.
_LIGHTGBM_OWN: Final = """
objective objective_type app application loss num_class num_classes num_iterations num_iteration
n_iter num_tree num_trees num_round num_rounds nrounds num_boost_round n_estimators max_iter
learning_rate shrinkage_rate eta seed random_seed random_state is_unbalance unbalance
unbalanced_sets scale_pos_weight metric metrics metric_types early_stopping_round
"""
_XGBOOST_OWN: Final = """
objective num_class eta learning_rate seed base_score scale_pos_weight eval_metric
disable_default_eval_metric n_estimators num_boost_round
"""


@dataclass(eq=False)
class Data:
    """What a booster is trained on: X as the library takes it, y in numbers, weights of mean one."""

    x: Any
    y: Floats
    weights: Floats
    held_x: Any = None


@dataclass(frozen=True)
class Settings:
    """How trees are grown; ``classes`` is 0 for a regression."""

    classes: int
    rounds: int
    learning_rate: float
    seed: int
    extra: Mapping[str, Any]

    @property
    def outputs(self) -> int:
        """The number of trees of a round."""
        return self.classes if self.classes > 2 else 1


class Backend(ABC):
    """One library. A booster that was begun by the user may be continued."""

    name: ClassVar[str]
    package: ClassVar[str]
    own: ClassVar[frozenset[str]]
    """Parameters that are arguments of the estimator."""

    def __init__(self, data: Data, settings: Settings, begun: Any = None) -> None:
        taken = sorted(self.own & set(settings.extra))
        if taken:
            fix = "Use n_estimators, learning_rate, random_state, and weights of rows or classes."
            must = "not hold what the estimator sets itself"
            raise ArgumentError("backend_params", must, ", ".join(taken), fix)
        self.data, self.settings = data, settings
        known = self._list_known() if settings.extra else None
        for name in self._find_unknown() if known is None else sorted(set(settings.extra) - known):
            close = difflib.get_close_matches(name, known or (), n=1)
            fix = f"Write {close[0]!r}." if close else f"Look at the parameters of {self.package}."
            must = f"hold parameters that {self.package} knows and uses"
            raise ArgumentError("backend_params", must, repr(name), fix)
        self.begun = self._read_begun(begun)

    def _list_known(self) -> set[str] | None:
        """Return the parameters of the library by all their names; None where it does not list them."""
        return None

    def _find_unknown(self) -> list[str]:
        """Return the parameters of the user that the library does not use, as far as it says so."""
        return []

    @abstractmethod
    def _read_begun(self, begun: Any) -> Any:
        """Return the booster to continue, checked; None for none."""

    @abstractmethod
    def train_plain(self) -> Any:
        """Return a booster without a penalty."""

    @abstractmethod
    def train(self, step: Step, after: After) -> Any:
        """Return a booster that descends the gradients of ``step``, as the library left it."""

    @abstractmethod
    def finish(self, booster: Any, rounds: int) -> Any:
        """Return an ordinary booster of the first rounds, which predicts probabilities anywhere."""

    @staticmethod
    @abstractmethod
    def predict_raw(booster: Any, x: Any) -> Floats:
        """Return raw scores ``(n, k)``."""

    @staticmethod
    @abstractmethod
    def to_bytes(booster: Any) -> bytes:
        """Return a booster in the library's own format."""

    @staticmethod
    @abstractmethod
    def from_bytes(data: bytes) -> Any:
        """Return a booster, as the library's own parser reads it."""

    def _refuse(self, begun: object, kind: str) -> ArgumentError:
        got, fix = type(begun).__name__, f"Pass the booster_ of an estimator, or a {kind}."
        return ArgumentError("init_model", f"be a {kind} for backend='{self.name}'", got, fix)


@contextlib.contextmanager
def _splittable(n: int) -> Iterator[None]:
    """Say what LightGBM means by a failed check of its source: no column can be split."""
    import lightgbm

    try:
        yield
    except lightgbm.basic.LightGBMError as error:
        if "num_features" not in str(error):
            raise
        got = f"{n} rows, of which every split would leave too few, or columns of one value each"
        fix = "Pass more rows, or backend_params={'min_data_in_leaf': 1}."
        raise ArgumentError("X", "have a column that LightGBM can split", got, fix) from None


class LightGBM(Backend):
    """Of ``lightgbm``."""

    name = package = "lightgbm"
    own = frozenset(_LIGHTGBM_OWN.split())

    _OBJECTIVES: ClassVar = {0: "regression", 2: "binary sigmoid:1"}

    def _read_begun(self, begun: Any) -> Any:
        import lightgbm

        if isinstance(begun, lightgbm.LGBMModel):
            begun = begun.booster_
        if begun is not None and not isinstance(begun, lightgbm.Booster):
            raise self._refuse(begun, "lightgbm.Booster")
        return begun

    def _list_known(self) -> set[str] | None:
        import lightgbm

        listed = getattr(getattr(lightgbm.basic, "_ConfigAliases", None), "_get_all_param_aliases", None)
        if listed is None:
            return None
        return {name for main, others in listed().items() for name in (main, *others)}

    @property
    def _params(self) -> dict[str, Any]:
        s = self.settings
        quiet = {"verbosity": -1, "deterministic": True, "force_row_wise": True, "metric": "none"}
        classes = {"num_class": s.classes} if s.outputs > 1 else {}
        return {**quiet, **s.extra, **classes, "learning_rate": s.learning_rate, "seed": s.seed}

    @property
    def _builtin(self) -> str:
        c = self.settings.classes
        return "multiclass" if c > 2 else self._OBJECTIVES[c].split()[0]

    def _dataset(self) -> Any:
        import lightgbm

        return lightgbm.Dataset(
            self.data.x, self.data.y, weight=self.data.weights, params=self._params, free_raw_data=False
        )

    def train_plain(self) -> Any:
        import lightgbm

        params = {**self._params, "objective": self._builtin}
        return lightgbm.train(params, self._dataset(), self.settings.rounds, init_model=self.begun)

    def _constant(self) -> Any:
        """Return a booster of one leaf a class: a gradient of one's own does not begin with the average.

        A few rows with the weights of all classes have the same average, and need no second set of bins.
        """
        import lightgbm

        y, w = self.data.y, self.data.weights
        classes = self.settings.classes
        places = np.arange(max(classes, 2)) % len(y)
        if classes:
            values: Floats = np.arange(classes, dtype=np.float64)
            weights: Any = np.bincount(y.astype(np.intp), w, classes)
        else:
            values, weights = np.full(2, np.average(y, weights=w)), np.ones(2)
        params = {
            **self._params,
            "objective": self._builtin,
            "min_gain_to_split": 1e300,
            "linear_tree": False,
        }
        few = lightgbm.Dataset(take_rows(self.data.x, places), values, weight=weights, params=params)
        return lightgbm.train(params, few, 1)

    def train(self, step: Step, after: After) -> Any:
        import lightgbm

        k = self.settings.outputs
        dataset = self._dataset()
        held: list[Floats | None] = [None]

        def objective(predicted: Floats, _: Any) -> tuple[Floats, Floats]:
            # A closure: parameters are copied deeply, and an object would be another one in every round.
            gradient, hessian = step(predicted.reshape(-1, k), held[0])
            shape = predicted.shape
            return gradient.reshape(shape), hessian.reshape(shape)

        def watch(predicted: Floats, _: Any) -> tuple[str, float, bool]:
            held[0] = predicted.reshape(-1, k)
            return "rows", 0.0, False

        def stop(env: Any) -> None:
            if after(env.iteration - env.begin_iteration + 1, held[0]):
                raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list or [])

        begun = self.begun if self.begun is not None else self._constant()
        watched = {}
        if self.data.held_x is not None:
            watched = {
                "valid_sets": [dataset.create_valid(self.data.held_x, params=self._params)],
                "feval": watch,
            }
        params = {**self._params, "objective": objective}
        with _splittable(len(self.data.y)):
            return lightgbm.train(
                params, dataset, self.settings.rounds, init_model=begun, callbacks=[stop], **watched
            )

    def finish(self, booster: Any, rounds: int) -> Any:
        import lightgbm

        before = 1 if self.begun is None else self.begun.current_iteration()
        text = booster.model_to_string(num_iteration=before + rounds, importance_type="gain")
        # The library knows no objective for a gradient of one's own; with it predict gives probabilities.
        c = self.settings.classes
        line = f"multiclass num_class:{c}" if c > 2 else self._OBJECTIVES[c]
        head, rest = text.split("\nfeature_names=", 1)
        return lightgbm.Booster(model_str=f"{head}\nobjective={line}\nfeature_names={rest}")

    @staticmethod
    def predict_raw(booster: Any, x: Any) -> Floats:
        raw = np.asarray(booster.predict(x, raw_score=True), dtype=np.float64)
        return raw.reshape(len(raw), -1)

    @staticmethod
    def to_bytes(booster: Any) -> bytes:
        text: str = booster.model_to_string()
        return text.encode()

    @staticmethod
    def from_bytes(data: bytes) -> Any:
        import lightgbm

        return lightgbm.Booster(model_str=data.decode())


class XGBoost(Backend):
    """Of ``xgboost``."""

    name = package = "xgboost"
    own = frozenset(_XGBOOST_OWN.split())

    def _read_begun(self, begun: Any) -> Any:
        import xgboost

        if isinstance(begun, xgboost.XGBModel):
            begun = begun.get_booster()
        if begun is not None and not isinstance(begun, xgboost.Booster):
            raise self._refuse(begun, "xgboost.Booster")
        return begun

    def _find_unknown(self) -> list[str]:
        """Return what the library warns about; which parameters it uses depends on the others."""
        import xgboost

        if not self.settings.extra:
            return []
        params = {**self.settings.extra, "validate_parameters": True, "verbosity": 1}
        rows = self._matrix(np.zeros((2, 1)), np.array([0.0, 1.0]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            xgboost.Booster(params, [rows]).save_config()
        texts = [str(one.message) for one in caught if "are not used" in str(one.message)]
        return [name for text in texts for name in re.findall(r'"([^"]+)"', text)]

    @property
    def _params(self) -> dict[str, Any]:
        s, y, w = self.settings, self.data.y, self.data.weights
        params = {"verbosity": 0, **s.extra, "learning_rate": s.learning_rate, "seed": s.seed}
        params["disable_default_eval_metric"] = True
        if s.outputs > 1:
            return {**params, "objective": "multi:softprob", "num_class": s.classes}
        objective = "binary:logistic" if s.classes else "reg:squarederror"
        return {**params, "objective": objective, "base_score": float(np.average(y, weights=w))}

    @staticmethod
    def _matrix(x: Any, y: Floats | None = None, weights: Floats | None = None) -> Any:
        import xgboost

        return xgboost.DMatrix(x, y, weight=weights, enable_categorical=True)

    def _start(self, *more: Any) -> tuple[Any, Any]:
        """Return the training rows and a booster, of no trees or of those begun."""
        import xgboost

        rows = self._matrix(self.data.x, self.data.y, self.data.weights)
        booster = xgboost.Booster(self._params, [rows, *more])
        if self.begun is not None:
            booster.load_model(self.begun.save_raw())
            own = {name: value for name, value in self._params.items() if name != "base_score"}
            booster.set_param(own)
        return rows, booster

    @property
    def _before(self) -> int:
        return 0 if self.begun is None else int(self.begun.num_boosted_rounds())

    def train_plain(self) -> Any:
        rows, booster = self._start()
        for round_ in range(self._before, self._before + self.settings.rounds):
            booster.update(rows, round_)
        return booster

    def train(self, step: Step, after: After) -> Any:
        held = None if self.data.held_x is None else self._matrix(self.data.held_x)
        rows, booster = self._start(*([] if held is None else [held]))
        k, other = self.settings.outputs, None
        for round_ in range(self.settings.rounds):
            raw = self._raw(booster, rows, k)
            if held is not None and round_ == 0:
                other = self._raw(booster, held, k)
            gradient, hessian = step(raw, other)
            booster.boost(rows, self._before + round_, grad=gradient, hess=hessian)
            if held is not None:
                other = self._raw(booster, held, k)
            if after(round_ + 1, other):
                break
        return booster

    @staticmethod
    def _raw(booster: Any, rows: Any, k: int) -> Floats:
        raw = booster.predict(rows, output_margin=True, training=True)
        return np.asarray(raw, dtype=np.float64).reshape(-1, k)

    def finish(self, booster: Any, rounds: int) -> Any:
        kept = booster[: self._before + rounds]
        kept.feature_names, kept.feature_types = booster.feature_names, booster.feature_types
        return kept

    @staticmethod
    def predict_raw(booster: Any, x: Any) -> Floats:
        import xgboost

        matrix = xgboost.DMatrix(x, enable_categorical=True)
        raw = np.asarray(booster.predict(matrix, output_margin=True), dtype=np.float64)
        return raw.reshape(len(raw), -1)

    @staticmethod
    def to_bytes(booster: Any) -> bytes:
        return bytes(booster.save_raw("ubj"))

    @staticmethod
    def from_bytes(data: bytes) -> Any:
        import xgboost

        booster = xgboost.Booster()
        booster.load_model(bytearray(data))
        return booster


def find_backend(name: str) -> type[Backend]:
    """Return a library by its name, if it is installed."""
    known: dict[str, type[Backend]] = {"lightgbm": LightGBM, "xgboost": XGBoost}
    if name not in known:
        must = f"be one of {', '.join(map(repr, known))}"
        raise ArgumentError("backend", must, repr(name), "Leave it out for LightGBM.")
    backend = known[name]
    try:
        __import__(backend.package)
    except ImportError:
        extra = "trees" if name == "lightgbm" else "xgboost"
        fix = f"Install it: pip install 'frhsic[{extra}]'."
        raise ImportError(f"backend='{name}' needs {backend.package}. {fix}") from None
    return backend
