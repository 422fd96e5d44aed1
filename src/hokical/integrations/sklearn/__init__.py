"""The scikit-learn meta-estimator: a calibrated classifier."""

from hokical.integrations.sklearn.classifier import CalibratedClassifier

__all__ = ["CalibratedClassifier"]
