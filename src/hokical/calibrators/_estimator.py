"""Estimators as scikit-learn knows them, without importing it.

`clone`, pipelines, searches and joblib need parameters by name and little else; tags come from
scikit-learn's base class when it asks for them.
"""

import inspect
from copy import deepcopy
from typing import Any, Self


class Estimator:
    """Base of estimators: `__init__` names all parameters and keeps each in its attribute."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep` is for scikit-learn, and changes nothing."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters.

        >>> from hokical.calibrators import Hoki
        >>> Hoki().set_params(n_bins=10)
        Hoki(n_bins=10)
        """
        known = list(_defaults(type(self)))
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {known}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The parameters that are not the default ones, as in scikit-learn."""
        defaults = _defaults(type(self))
        shown = ((name, repr(value)) for name, value in self.get_params().items())
        changed = [f"{name}={text}" for name, text in shown if text != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


def clone(estimator: Any) -> Any:
    """An unfitted estimator with the same parameters, as scikit-learn's `clone` gives.

    >>> from hokical.calibrators import Hoki
    >>> clone(Hoki(n_bins=10))
    Hoki(n_bins=10)
    """
    if not isinstance(estimator, Estimator):
        return deepcopy(estimator)
    return type(estimator)(**{k: clone(v) for k, v in estimator.get_params().items()})


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The parameters of `__init__`, sorted by name, with their defaults."""
    parameters = inspect.signature(kind).parameters
    return {name: parameters[name].default for name in sorted(parameters)}
