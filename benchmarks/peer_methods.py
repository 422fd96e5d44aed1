"""Methods of this library and of others, under one interface, for `bench_peers.py`.

Those of other libraries are `hokical_paper.study.peers`'s. A contender gets the kind of
input that its library asks for, made before the clock starts.
"""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical_paper.study.peers import (
    Contender,
    mapie,
    mapie_venn_abers,
    netcal,
    probmetrics,
    sklearn,
)

OURS = "hokical"
#: The distribution and the module to import of every library, in the order of the
#: tables.
LIBRARIES = {
    OURS: ("hokical", "hokical"),
    "scikit-learn": ("scikit-learn", "sklearn.calibration"),
    "netcal": ("netcal", "netcal.scaling"),
    "probmetrics": ("probmetrics", "probmetrics.calibrators"),
    "torch-uncertainty": ("torch-uncertainty", "torch_uncertainty.post_processing"),
    "MAPIE": ("mapie", "mapie.calibration"),
}
#: Penalties of the Dirichlet calibration that is compared, of W off the diagonal and of
#: b.
LAMBDA, MU = 1000.0, 10.0
#: With more classes, methods with several numbers per class take minutes in any of the
#: libraries.
MAX_CROSS_CLASSES = 100


def ours(name: str, **options: Any) -> Contender:
    def fit(logits: Any, labels: Any) -> Any:
        return import_module("hokical").make(name, **options).fit(logits, labels)

    return Contender(
        f'`make("{name}")`', np.asarray, fit, lambda model, x: model.predict_proba(x)
    )


def torch_uncertainty(name: str, per_class: bool = True, **options: Any) -> Contender:
    """Its scalers take logits in a data loader, here in one batch, and answer with
    logits.
    """

    def to_input(logits: NDArray[Any]) -> Any:
        return import_module("torch").from_numpy(logits)

    def fit(logits: Any, labels: Any) -> Any:
        torch = import_module("torch")
        kind = getattr(import_module("torch_uncertainty.post_processing"), name)
        classes = {"num_classes": logits.shape[1]} if per_class else {}
        scaler = kind(**classes, model=torch.nn.Identity(), **options)
        scaler.fit([(logits, torch.from_numpy(labels))], progress=False)
        return scaler

    def answer(scaler: Any, logits: Any) -> Any:
        return import_module("torch").softmax(scaler(logits), dim=1).numpy()

    logging.getLogger().setLevel(logging.ERROR)  # it warns that there is no network
    return Contender(f"`{name}`", to_input, fit, answer, ("torch_uncertainty",))


#: Methods by their name in the tables, and who has them. The first is always this
#: library.
METHODS: dict[str, dict[str, Contender]] = {
    "temperature scaling": {
        OURS: ours("temps"),
        "scikit-learn": sklearn("temperature"),
        "netcal": netcal("scaling", "TemperatureScaling"),
        "probmetrics": probmetrics("TemperatureScalingCalibrator"),
        "torch-uncertainty": torch_uncertainty("TemperatureScaler", per_class=False),
    },
    "vector scaling": {
        OURS: ours("vecs"),
        "netcal": netcal("scaling", "LogisticCalibration"),
        "probmetrics": probmetrics("VectorScalingCalibrator"),
        "torch-uncertainty": torch_uncertainty("VectorScaler"),
    },
    "structured scaling": {
        OURS: ours("structured"),
        "probmetrics": probmetrics("SMSCalibrator", print_init_info=False),
    },
    "Dirichlet, fixed penalties": {
        OURS: ours("dir_odir", lambdas=LAMBDA, mus=MU),
        "torch-uncertainty": torch_uncertainty(
            "DirichletScaler", lambda_reg=LAMBDA, mu_reg=MU
        ),
    },
    "isotonic, class by class": {
        OURS: ours("irova_ts"),
        "scikit-learn": sklearn("isotonic"),
        "netcal": netcal("binning", "IsotonicRegression"),
        "torch-uncertainty": torch_uncertainty(
            "IsotonicRegressionScaler", per_class=False
        ),
        "MAPIE": mapie(
            '`TopLabelCalibrator(calibrator="isotonic")`',
            lambda module, model: module.TopLabelCalibrator(
                model, "isotonic", cv="prefit"
            ),
            sums_to_one=False,
        ),
    },
    "Platt scaling": {
        OURS: ours("platt"),
        "scikit-learn": sklearn("sigmoid"),
        "netcal": netcal("scaling", "LogisticCalibration"),
        "probmetrics": probmetrics("BinaryLogisticCalibrator", type="affine"),
    },
    "beta calibration": {
        OURS: ours("beta"),
        "netcal": netcal("scaling", "BetaCalibration"),
        "probmetrics": probmetrics("BetacalCalibrator", "betacal"),
    },
    "Venn-Abers": {
        OURS: ours("venn_abers"),
        "probmetrics": probmetrics("VennAbersCalibrator", "venn_abers"),
        "MAPIE": mapie_venn_abers(),
    },
    "hoki": {OURS: ours("hoki")},
    "auto, the default": {OURS: ours("auto")},
}
BINARY: tuple[str, ...] = ("Platt scaling", "beta calibration", "Venn-Abers")
#: What is measured with a library in a fresh process.
FIRST = dict.fromkeys(LIBRARIES, "temperature scaling") | {"MAPIE": "Venn-Abers"}


def first_answer(library: str, logits: NDArray[Any], labels: NDArray[Any]) -> None:
    """Fit and answer, as a process does that has just begun."""
    contender = METHODS[FIRST[library]][library]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = contender.to_input(logits)
        contender.proba(contender.fit(given, labels), given)


def methods_for(n_classes: int) -> list[str]:
    """The methods that are compared at a number of classes."""
    skipped = BINARY
    if n_classes == 2:
        skipped = (
            "vector scaling",
            "Dirichlet, fixed penalties",
        )  # Platt and beta with more numbers
    elif n_classes > MAX_CROSS_CLASSES:
        skipped = (
            *BINARY,
            "vector scaling",
            "structured scaling",
            "Dirichlet, fixed penalties",
        )
    return [name for name in METHODS if name not in skipped]
