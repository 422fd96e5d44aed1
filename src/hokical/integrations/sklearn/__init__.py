"""The scikit-learn meta-estimator: a calibrated classifier. Needs `hokical[sklearn]`."""

try:
    import sklearn as sklearn
except ImportError as error:
    raise ImportError(
        '`CalibratedClassifier` needs scikit-learn: pip install "hokical[sklearn]".'
    ) from error

from hokical.integrations.sklearn.classifier import CalibratedClassifier

__all__ = ["CalibratedClassifier"]
