"""The names of the methods and their modules, without importing them.

A method of another package is declared with `hokical.calibrators.register`, or by an entry point of
the group `hokical.calibrators`, which is searched for names that are not known here.
"""

from functools import cache
from importlib import import_module
from typing import Any

from hokical._core.logits import Logits
from hokical._core.storage import is_storable

#: Module and class of every method of this package, in the order of tables.
BUILT_IN: dict[str, tuple[str, str]] = {
    "uncalibrated": ("temps", "Uncalibrated"),
    "temps": ("temps", "TemperatureScaling"),
    "vecs": ("vecs", "VectorScaling"),
    "structured": ("structured", "StructuredScaling"),
    "adaptive": ("adaptive", "AdaptiveTemperatureScaling"),
    "ets": ("ets", "EnsembleTemperatureScaling"),
    "irm": ("isotonic", "IsotonicMulticlass"),
    "irova_ts": ("isotonic", "IsotonicOneVsAllTS"),
    "hoki": ("hoki", "Hoki"),
    "platt": ("binary", "PlattScaling"),
    "beta": ("binary", "BetaCalibration"),
    "venn_abers": ("binary", "VennAbers"),
}
#: Those for two classes, known without importing them.
BINARY_ONLY = ("platt", "beta", "venn_abers")
#: Names that say what a method is; tables and files keep the short ones.
ALIASES = {
    "softmax": "uncalibrated", "temperature": "temps", "vector": "vecs", "matrix": "ms_odir",
    "dirichlet": "dir_odir", "ensemble_temperature": "ets", "isotonic_pooled": "irm",
    "isotonic_ovr": "irova_ts", "stability_profile": "profile",
}  # fmt: skip
#: The automatic choice among them.
AUTOMATIC = {"auto": ("automatic", "AutoCalibrator")}
#: Calibrators of something else than logits, by the method's name in files.
BEYOND_LOGITS = {
    "confidence": ("confidence", "ConfidenceCalibrator"),
    "multilabel": ("multilabel", "MultilabelCalibrator"),
}
GROUP = "hokical.calibrators"
#: Methods that earlier versions had, and module and class of the package that has them now.
MOVED = {
    "recal": ("recal", "ReCal"),
    "ms_odir": ("odir", "MatrixScalingODIR"),
    "dir_odir": ("odir", "DirichletODIR"),
    "profile": ("profile", "StabilityProfile"),
}
#: Rules with a stability profile: the method's, and that of the default in files up to 0.3.
PROFILED = ("profile", "auto-profiled")
#: What is meant by the names of scikit-learn's `CalibratedClassifierCV`.
OF_SKLEARN = {
    "sigmoid": "scikit-learn's sigmoid is `platt`, for two classes; for more use `vecs`.",
    "isotonic": "scikit-learn's isotonic is nearest to `irova_ts`; `irm` keeps labels.",
}

_registered: dict[str, type[Any]] = {}


def register(kind: type[Any]) -> type[Any]:
    """Register a method of your own: a subclass of `BaseCalibrator` with a `rule_kind`.

    It can then be created by name, compared, saved, loaded, exported and used on the command line
    like any other. To be found in every process, name the class in an entry point of the group
    `hokical.calibrators`. Can be used as a decorator.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not hasattr(kind, "rule_kind"):
        raise TypeError(f"`kind` must be a BaseCalibrator with a `rule_kind`; got {kind!r}.")
    taken = name in BUILT_IN or name in AUTOMATIC
    known = _registered.get(name)
    if taken or (known is not None and known.__qualname__ != kind.__qualname__):
        raise ValueError(f"the name {name!r} is taken. Give the rule another `name`.")
    _registered[name] = kind
    return kind


def unregister(name: str) -> None:
    """Remove a registered method; those of this package stay."""
    _registered.pop(name, None)


def method_names() -> list[str]:
    """The names of all methods, those of other packages last, without "auto"."""
    _find_entry_points()
    return [*BUILT_IN, *_registered]


def methods_from_logits(n_classes: int | None = None) -> list[str]:
    """The methods that need nothing but logits and labels, of `n_classes` if given.

    >>> methods_from_logits()[:3]
    ['uncalibrated', 'temps', 'vecs']
    """
    _find_entry_points()
    binary = {*BINARY_ONLY, *(name for name, kind in _registered.items() if kind.binary_only)}
    unusable = {name for name, kind in _registered.items() if kind.logits_kind is not Logits}
    unusable |= set() if n_classes in (None, 2) else binary
    return [name for name in method_names() if name not in unusable]


def load_estimator_class(name: Any, argument: str = "name") -> type[Any]:
    """The estimator class of a method; an error names the `argument` that held the name."""
    if isinstance(name, str):
        name = find_method(name)
        if name in BUILT_IN or name in AUTOMATIC:
            module, kind = (BUILT_IN | AUTOMATIC)[name]
            found: type[Any] = getattr(import_module(f"hokical.calibrators._{module}"), kind)
            return found
        if name not in _registered:
            _find_entry_points()
        if name in _registered:
            return _registered[name]
    raise ValueError(
        f"`{argument}` must be one of {[*method_names(), *AUTOMATIC]}; got {name!r}.{suggest(name)}"
    )


def find_estimator_class(name: str) -> type[Any] | None:
    """The estimator class of a fitted method; None if the package that has it is not installed."""
    return load_estimator_class(name) if name in [*method_names(), *AUTOMATIC] else None


def load_class_beyond_logits(method: str) -> type[Any]:
    """The class of a calibrator of something else than logits."""
    module, kind = BEYOND_LOGITS[method]
    found: type[Any] = getattr(import_module(f"hokical.calibrators._{module}"), kind)
    return found


def find_method(name: str) -> str:
    """The name of a method that is called by an alias or by the name of its class.

    >>> find_method("temperature"), find_method("VectorScaling"), find_method("isotonic_ovr")
    ('temps', 'vecs', 'irova_ts')
    """
    if name in ALIASES:
        return ALIASES[name]
    wanted = _letters(name)
    # Searching entry points takes longer.
    known = name in BUILT_IN or name in AUTOMATIC or name in method_names()
    for method, (_, kind) in ({} if known else BUILT_IN | MOVED).items():
        if wanted in (kind.lower(), _letters(method)):
            return method
    return name


def suggest(name: Any) -> str:
    """What to do about an unknown name, with a space before it; empty if no method is like it.

    >>> suggest("vec")
    ' Did you mean vecs?'
    """
    import difflib

    if str(name) in OF_SKLEARN:
        return f" {OF_SKLEARN[name]}"
    if str(name) in MOVED:
        return " It is in another package: `pip install hokical-paper`."
    wanted = _letters(str(name))
    alike = [method for method, (_, kind) in BUILT_IN.items() if wanted and wanted in kind.lower()]
    known = dict.fromkeys([*method_names(), *AUTOMATIC, *MOVED])
    alike = alike or difflib.get_close_matches(str(name).lower(), known, 2)
    return f" Did you mean {' or '.join(alike)}?" if alike else ""


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def find_rule(record: str) -> None:
    """Load rules of other packages if a record of a file is unknown."""
    if not is_storable(record):
        _find_entry_points()
    method = record.removeprefix("rule:")
    if method in BEYOND_LOGITS:
        load_class_beyond_logits(method)
    if is_storable(record):
        return
    if method in PROFILED:
        raise ValueError(
            "it holds a stability profile, which is in another package: `pip install "
            "hokical-paper`, or fit again"
        )
    if method in MOVED:
        raise ValueError(f"its method {method!r} is not part of hokical.{suggest(method)}")


@cache
def _find_entry_points() -> None:
    from importlib.metadata import entry_points  # it takes as long as all rules together

    for entry in entry_points(group=GROUP):
        register(entry.load())
