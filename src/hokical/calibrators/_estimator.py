"""Estimators as scikit-learn knows them, without importing it.

`clone`, pipelines, searches and joblib need parameters by name and little else. What more
scikit-learn's own estimators have (metadata routing, tags, HTML) comes from its base class, when
asked for.
"""

import inspect
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Self


class Estimator:
    """Base of estimators: `__init__` names all parameters and keeps each in its attribute."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; if `deep`, with those of parameters that are estimators."""
        return dict(self._parameters(deep))

    def _parameters(self, deep: bool) -> Iterator[tuple[str, Any]]:
        for name in _defaults(type(self)):
            value = getattr(self, name)
            yield name, value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                yield from ((f"{name}__{key}", own) for key, own in value.get_params().items())

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; `name__other` is `other` of the estimator in the parameter `name`.

        >>> from hokical.calibrators import Hoki
        >>> Hoki().set_params(n_bins=10)
        Hoki(n_bins=10)
        """
        known = list(_defaults(type(self)))
        for key in parameters:
            if key.partition("__")[0] not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {key!r}; it has {known}.")
        # Parameters that are replaced come before those of the new ones.
        for key in sorted(parameters, key=lambda key: "__" in key):
            name, _, inner = key.partition("__")
            if inner:
                getattr(self, name).set_params(**{inner: parameters[key]})
            else:
                setattr(self, name, parameters[key])
        return self

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters that are not the default ones, as in scikit-learn."""
        defaults = _defaults(type(self))
        shown = ((name, repr(value)) for name, value in self._parameters(deep=False))
        changed = [f"{name}={text}" for name, text in shown if text != repr(defaults[name])]
        text = f"{type(self).__name__}({', '.join(changed)})"
        half = N_CHAR_MAX // 2
        return text if len(text) <= N_CHAR_MAX else f"{text[:half]}...{text[-half:]}"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)

    def get_metadata_routing(self) -> Any:
        """What scikit-learn's metadata routing passes to which method."""
        return self._requests().get_metadata_routing()

    def set_fit_request(self, **requests: Any) -> Self:
        """Ask scikit-learn's metadata routing for arguments of `fit`."""
        self._requests().set_fit_request(**requests)
        return self

    def set_score_request(self, **requests: Any) -> Self:
        """Ask scikit-learn's metadata routing for arguments of `score`."""
        self._requests().set_score_request(**requests)
        return self

    def _requests(self) -> Any:
        """An estimator of scikit-learn's with this one's requests, which it shares."""
        found = _sklearn_class(type(self))()
        found.__dict__ = self.__dict__
        return found


def clone(estimator: Any) -> Any:
    """An unfitted estimator with the same parameters, as scikit-learn's `clone` gives.

    >>> from hokical.calibrators import Hoki
    >>> clone(Hoki(n_bins=10))
    Hoki(n_bins=10)
    """
    if not isinstance(estimator, Estimator):
        return deepcopy(estimator)
    return type(estimator)(**{k: clone(v) for k, v in estimator.get_params(deep=False).items()})


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The parameters of `__init__`, sorted by name, with their defaults."""
    parameters = inspect.signature(kind).parameters
    return {name: parameters[name].default for name in sorted(parameters)}


def _sklearn_class(kind: Any) -> Any:
    """A class of scikit-learn's whose methods have the same arguments."""
    from sklearn.base import BaseEstimator

    return type(kind.__name__, (BaseEstimator,), {"fit": kind.fit, "score": kind.score})
