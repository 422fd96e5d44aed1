"""Methods by name and calibrators from files, imported when they are needed.

A method of another package is declared with `hokical.calibrators.register`, or by an
entry point of the group `hokical.calibrators`, which is searched for names that are not
known here.
"""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from hokical._core.checks import check_count
from hokical._core.logits import Logits
from hokical._core.runtime import warn_user
from hokical._core.storage import CalibratorFileError, is_storable, read_document
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import (
    MethodInfo,
    StoredEstimator,
    check_plain_logits,
    clone,
)

#: Module and class of every method of this package, in the order of tables.
BUILT_IN: dict[str, tuple[str, str]] = {
    "uncalibrated": ("methods", "Uncalibrated"),
    "temps": ("methods", "TemperatureScaling"),
    "vecs": ("methods", "VectorScaling"),
    "structured": ("methods", "StructuredScaling"),
    "adaptive": ("methods", "AdaptiveTemperatureScaling"),
    "ets": ("methods", "EnsembleTemperatureScaling"),
    "irm": ("methods", "IsotonicMulticlass"),
    "irova_ts": ("methods", "IsotonicOneVsAllTS"),
    "hoki": ("hoki", "Hoki"),
    "platt": ("methods", "PlattScaling"),
    "beta": ("methods", "BetaCalibration"),
    "venn_abers": ("methods", "VennAbers"),
}
#: Those for two classes, known without importing them.
BINARY_ONLY = ("platt", "beta", "venn_abers")
#: The automatic choice among them.
AUTOMATIC = {"auto": ("automatic", "AutoCalibrator")}
#: Calibrators of other scores than logits, by the method's name in files.
OTHER_SCORES = {
    "confidence": ("confidence", "ConfidenceCalibrator"),
    "multilabel": ("confidence", "MultilabelCalibrator"),
    "survival": ("survival", "SurvivalCalibrator"),
}
#: Modules that define a record of files, by its name, and are imported when it is met.
_RECORD_HOMES = {
    "rule:confidence": "confidence",
    "rule:multilabel": "confidence",
    "survival-curve": "survival",
}
#: scikit-learn's name for what is the same method here.
ALIASES = {"temperature": "temps"}
#: Second names of methods, which go with 0.7.
RETIRED_NAMES = {
    "softmax": "uncalibrated",
    "vector": "vecs",
    "matrix": "ms_odir",
    "dirichlet": "dir_odir",
    "ensemble_temperature": "ets",
    "isotonic_pooled": "irm",
    "isotonic_ovr": "irova_ts",
    "stability_profile": "profile",
}
#: Methods of hokical-paper.
IN_PAPER = ("recal", "ms_odir", "dir_odir", "profile", "hoki_from_p0")
_PAPER = "hokical-paper: `pip install ./paper` in a clone"
#: What to do about names that are not those of methods here.
_HINTS = {
    "sigmoid": "scikit-learn's sigmoid is `platt`, for two classes; for more use `vecs`.",
    "isotonic": "scikit-learn's isotonic is nearest to `irova_ts`; `irm` keeps labels.",
    **dict.fromkeys(IN_PAPER, f"It is in the package {_PAPER}."),
}
GROUP = "hokical.calibrators"

_registered: dict[str, type[Calibrator]] = {}

Kind = TypeVar("Kind", bound=type[Calibrator])


def register(kind: Kind) -> Kind:
    """Register a method of your own: a subclass of `Calibrator` with a `method` and a
    `_fit`.

    It can then be created by name, compared, saved, loaded, exported and used on the
    command line like any other. To be found in every process, name the class in an
    entry point of the group `hokical.calibrators`. Can be used as a decorator.

    >>> from dataclasses import dataclass
    >>> from hokical.calibrators import Calibrator, Fit, MethodInfo
    >>> from hokical.rules import Rule
    >>> from hokical.stability import Gumbel
    >>> @dataclass(frozen=True)
    ... class HalfRule(Rule):
    ...     name = "half"
    ...
    ...     def proba(self, logits):
    ...         return Gumbel(2.0).distribution(logits)
    >>> class Half(Calibrator):
    ...     method = MethodInfo(
    ...         HalfRule, "Softmax at temperature 2", "an example", "nothing"
    ...     )
    ...
    ...     def _fit(self, examples):
    ...         return Fit(HalfRule())
    >>> register(Half)  # doctest: +SKIP
    >>> Half().fit([[2.0, 0.0], [0.0, 2.0]], [0, 1]).predict_proba([[2.0, 0.0]]).round(
    ...     3
    ... ).tolist()
    [[0.731, 0.269]]
    """
    method = getattr(kind, "method", None)
    if not isinstance(method, MethodInfo):
        raise TypeError(
            "`kind` must be a subclass of Calibrator with a `method`, a MethodInfo; "
            f"got {kind!r}."
        )
    name = method.name
    registered = _registered.get(name, kind)
    is_built_in = name in BUILT_IN or name in AUTOMATIC
    if is_built_in or registered.__qualname__ != kind.__qualname__:
        raise ValueError(f"the name {name!r} is taken. Give the rule another `name`.")
    _registered[name] = kind
    return kind


def method_names(n_classes: int | None = None) -> list[str]:
    """The names of all methods, those of other packages last, without "auto".

    With `n_classes`, only those that can be fitted on logits of this many classes and
    labels alone.

    >>> method_names()[:3], "platt" in method_names(2), "platt" in method_names(10)
    (['uncalibrated', 'temps', 'vecs'], True, False)
    """
    _find_entry_points()
    if n_classes is None:
        return [*BUILT_IN, *_registered]
    check_count("n_classes", n_classes)
    methods = [kind.method for kind in _registered.values()]
    of_logits = [method for method in methods if method.logits_kind is Logits]
    binary_only = {method.name for method in of_logits if method.binary_only}
    binary_only.update(BINARY_ONLY)
    names = [*BUILT_IN, *(method.name for method in of_logits)]
    return [name for name in names if n_classes == 2 or name not in binary_only]


def make(name: str, **parameters: object) -> Calibrator:
    """Create a calibrator by its method's name; "auto" is the automatic choice.

    Its `method` has a title, a reference and what it can do.

    >>> make("hoki", n_bins=10)
    Hoki(n_bins=10)
    """
    kind = load_class(name)
    if parameters:
        accepted = [*kind().get_params()]
        for parameter in parameters:
            if parameter not in accepted:
                raise TypeError(
                    f"{name!r} has no parameter {parameter!r}; it has {accepted}."
                )
    return kind(**parameters)


def new_calibrator(
    method: object, *, argument: str = "method", **parameters: object
) -> Calibrator:
    """An unfitted calibrator for logits alone: by its name, or a copy of the one
    given.
    """
    if isinstance(method, str):
        name = resolve_alias(method)
        load_class(name, argument)  # whose error names the argument
        calibrator = make(name, **parameters)
    elif isinstance(method, Calibrator):
        refuse_options(parameters)
        calibrator = clone(method)
    else:
        raise TypeError(
            f"`{argument}` must be a method's name or a calibrator; got "
            f'{type(method).__name__}. For example "hoki".'
        )
    check_plain_logits(calibrator.name, calibrator.method.logits_kind, argument)
    return calibrator


def refuse_options(options: Mapping[str, object]) -> None:
    """Raise if there are options beside a calibrator."""
    if options:
        raise TypeError(
            f"options {sorted(options)} go with a method's name: set them on the "
            "calibrator itself."
        )


def resolve_alias(name: str) -> str:
    """The name in tables and files; a retired name warns."""
    if name in RETIRED_NAMES:
        warn_user(
            f"the method {name!r} is {RETIRED_NAMES[name]!r} now; the old name goes "
            "with 0.7.",
            FutureWarning,
        )
        return RETIRED_NAMES[name]
    return ALIASES.get(name, name)


def load_class(name: object, argument: str = "name") -> type[Calibrator]:
    """The class of a method; an error names the `argument` that held the name."""
    if isinstance(name, str):
        name = resolve_alias(name)
        home = (BUILT_IN | AUTOMATIC).get(name)
        if home is not None:
            calibrator_class: type[Calibrator] = _import_class(*home)
            return calibrator_class
        if name not in _registered:
            _find_entry_points()
        if name in _registered:
            return _registered[name]
    raise ValueError(
        f"`{argument}` must be one of {[*method_names(), *AUTOMATIC]}; got "
        f"{name!r}.{suggest(name)}"
    )


def _import_class(module: str, class_name: str) -> Any:
    """A class of this package, from its module."""
    return getattr(import_module(f"hokical.calibrators.{module}"), class_name)


def suggest(name: object) -> str:
    """What to do about an unknown name, with a space before it; empty if no method is
    like it.

    >>> suggest("vec")
    ' Did you mean vecs?'
    >>> suggest("isotonic_ov")
    ' Did you mean irova_ts or irm?'
    """
    import difflib

    if str(name) in _HINTS:
        return f" {_HINTS[str(name)]}"
    names = {method: method for method in (*method_names(), *AUTOMATIC)}
    names |= RETIRED_NAMES | ALIASES
    alike = difflib.get_close_matches(str(name).lower(), names, 2)
    methods = dict.fromkeys(names[spelling] for spelling in alike)
    return f" Did you mean {' or '.join(methods)}?" if methods else ""


def load(path: str | os.PathLike[str]) -> Any:
    """Read a calibrator that `save` wrote: an object of the same class, fitted as it
    was.

    Raises CalibratorFileError for anything else. Loading and predicting need NumPy and
    array-api-compat alone: scikit-learn, SciPy and numba are not imported.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import hokical
    >>> from hokical.demo import demo_logits
    >>> cal = hokical.make("temps").fit(*demo_logits()[0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cal.save(Path(folder, "cal.json"))
    ...     loaded = hokical.load(Path(folder, "cal.json"))
    >>> loaded.temperature_ == cal.temperature_
    True
    """
    document = read_document(path, find_rule)
    name = document.get("method")
    try:
        if str(name) in OTHER_SCORES:
            kind: type[StoredEstimator] = _import_class(*OTHER_SCORES[str(name)])
        else:
            kind = load_class(name, "method")
    except ValueError as error:
        raise CalibratorFileError(
            f"{path} is of another package or version: {error}"
        ) from error
    try:
        return kind.from_document(document)
    except (KeyError, AttributeError, TypeError, ValueError) as error:  # an edited file
        raise CalibratorFileError(
            f"{path} holds no usable {kind.__name__}: {error}"
        ) from error


def find_rule(record: str) -> None:
    """Import what defines an unknown record of a file; here, or in another package."""
    if record in _RECORD_HOMES:
        import_module(f"hokical.calibrators.{_RECORD_HOMES[record]}")
    if not is_storable(record):
        _find_entry_points()
    method = record.removeprefix("rule:")
    if not is_storable(record) and method in IN_PAPER:
        raise ValueError(
            f"it holds the method {method!r}, which is in the package {_PAPER}, or fit "
            "again"
        )


@cache
def _find_entry_points() -> None:
    # Here, as it takes as long to import as all rules together.
    from importlib.metadata import (
        entry_points,
    )

    for entry in entry_points(group=GROUP):
        register(entry.load())
