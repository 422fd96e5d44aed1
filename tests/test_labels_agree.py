"""One label for every row, wherever it is asked for: the first maximum of the
probabilities shown.

The data are like those of naive Bayes on dependent features: far too sure, and one
class is predicted too often, so that calibration changes labels.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import hokical
from hokical._core.arrays import to_host
from hokical.cli import app
from hokical.rules import as_logits
from hokical.rules.base import predict_blocks
from hokical.rules.scaling import AutoRule
from tests.cli.running import run
from tests.conftest import max_examples
from tests.fitted import with_rule
from tests.libraries import NAMES as LIBRARIES
from tests.libraries import get_library
from tests.rules.making import NAMES, class_counts, make_case, seeds

NAMED = ("low", "middle", "high")


def class_gaussians(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (n, 4), log-probabilities (n, 3) and labels (n,)."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=n, p=[0.2, 0.5, 0.3])
    features = (
        rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, 4)) + 1.2 * labels[:, None]
    )
    centres = 1.2 * np.arange(3)
    logits = -0.5 * ((features[:, :, None] - centres) ** 2).sum(axis=1) / 0.7
    return features, logits - np.logaddexp.reduce(logits, axis=1)[:, None], labels


VAL, TEST = class_gaussians(1500, 0), class_gaussians(600, 1)
LOGITS = TEST[1]


@pytest.fixture(scope="module")
def cal() -> hokical.AutoCalibrator:
    return hokical.auto(VAL[1], VAL[2])


@pytest.fixture(scope="module")
def expected(cal: hokical.AutoCalibrator) -> np.ndarray:
    return cal.predict_proba(LOGITS).argmax(axis=1)


@pytest.fixture(scope="module")
def file(cal: hokical.AutoCalibrator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "cal.json"
    cal.save(path)
    return path


def test_calibration_changes_labels_here(cal: Any, expected: np.ndarray) -> None:
    own, truth = LOGITS.argmax(axis=1), TEST[2]
    assert cal.chosen_ == "structured"
    assert (expected != own).mean() > 0.03
    assert (expected == truth).mean() > (own == truth).mean()


def test_estimators_files_and_streams(
    cal: Any, expected: np.ndarray, file: Path
) -> None:
    proba = cal.predict_proba(LOGITS)
    for fitted in (cal, hokical.load(file)):
        assert not fitted.rule_.preserves_labels
        assert_array_equal(fitted.predict(LOGITS), expected)
        assert_array_equal(fitted.predict_confidence(LOGITS), proba.max(axis=1))
        assert_array_equal(fitted.predict_or_abstain(LOGITS).labels, expected)
        narrow = fitted.predict_proba(LOGITS, dtype="float32")
        assert_array_equal(narrow.argmax(axis=1), expected)
        members = fitted.predict_set(LOGITS, coverage=0.8).members
        assert members.any(axis=1).all()
        parts = hokical.streams.predict(
            fitted, [LOGITS[:250], LOGITS[250:]], what="labels"
        )
        assert_array_equal(np.concatenate([*parts]), expected)
    certified = hokical.load(file).certify(*class_gaussians(1000, 2)[1:])
    assert_array_equal(certified.predict_or_abstain(LOGITS).labels, expected)
    members = certified.predict_set(LOGITS, coverage=0.8).members
    assert members[
        np.arange(len(expected)), expected
    ].all()  # the likeliest is in every set


def test_dense_predictions(cal: Any, expected: np.ndarray) -> None:
    maps = np.moveaxis(LOGITS.reshape(6, 10, 10, 3), 3, 1)
    dense = hokical.Dense(cal, class_axis=1)
    assert_array_equal(np.asarray(dense.predict(maps)).reshape(-1), expected)
    assert_array_equal(
        np.asarray(dense.predict_proba(maps)).argmax(axis=1).reshape(-1), expected
    )


def test_dask(cal: Any, expected: np.ndarray) -> None:
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(LOGITS, chunks=(130, 3))
    assert_array_equal(cal.predict(lazy).compute(scheduler="synchronous"), expected)
    proba = cal.predict_proba(lazy).compute(scheduler="synchronous")
    assert_array_equal(proba.argmax(axis=1), expected)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for part, (_, logits, labels) in (("val", VAL), ("test", TEST)):
        with (tmp_path / f"{part}.csv").open("w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow([*(f"logit_{name}" for name in NAMED), "label"])
            cells = zip(logits.tolist(), labels.tolist(), strict=True)
            rows.writerows([*map(repr, row), NAMED[label]] for row, label in cells)
    return tmp_path


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_the_command_line(tables: Path, expected: np.ndarray, kind: str) -> None:
    saved, out = tables / "cal.json", tables / f"out.{kind}"
    told = run("fit", tables / "val.csv", "-o", saved)
    assert "the most likely class after calibration" in told
    assert "before calibration" in told
    assert "the most likely class after calibration" in run("show", saved)
    told = run("apply", saved, tables / "test.csv", "-o", out, "--proba")
    assert "another class is more likely" not in told
    if kind == "npz":
        with np.load(out) as found:
            labels, proba = found["labels"], found["probabilities"]
    elif kind == "csv":
        with out.open(newline="") as stream:
            rows = [*csv.DictReader(stream)]
        labels = np.array([NAMED.index(row["label"]) for row in rows])
        proba = np.array(
            [[float(row[f"probability_{name}"]) for name in NAMED] for row in rows]
        )
    else:
        table = pytest.importorskip("pyarrow.parquet").read_table(out).to_pydict()
        labels = np.array([NAMED.index(name) for name in table["label"]])
        proba = np.array([table[f"probability_{name}"] for name in NAMED]).T
    assert_array_equal(labels, proba.argmax(axis=1))
    assert_array_equal(labels, expected)


def test_a_folder_of_parquet_files(
    file: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    parquet, arrow = (
        pytest.importorskip("pyarrow.parquet"),
        pytest.importorskip("pyarrow"),
    )
    (tmp_path / "in").mkdir()
    for k, rows in enumerate((slice(0, 200), slice(200, 600))):
        columns = {f"logit_{j}": LOGITS[rows, j] for j in range(3)}
        parquet.write_table(arrow.table(columns), tmp_path / "in" / f"{k}.parquet")
    run("apply", file, tmp_path / "in", "-o", tmp_path / "out", "--proba")
    table = parquet.read_table(tmp_path / "out").to_pydict()
    proba = np.array([table[f"probability_{k}"] for k in range(3)]).T
    assert_array_equal(table["label"], proba.argmax(axis=1))
    assert_array_equal(table["label"], expected)


def test_labels_that_are_kept_are_spoken_of(tables: Path) -> None:
    saved, out = tables / "cal.json", tables / "out.csv"
    told = run("fit", tables / "val.csv", "-o", saved, "--keep-labels")
    assert "the classifier's own" in told
    assert "the classifier's own" in run("show", saved)
    assert "rows another class is more likely than the label" in run(
        "apply", saved, tables / "test.csv", "-o", out, "--proba"
    )
    with out.open(newline="") as stream:
        labels = [NAMED.index(row["label"]) for row in csv.DictReader(stream)]
    assert_array_equal(labels, LOGITS.argmax(axis=1))
    for wrong in (["--method", "temps"], ["--method", "vecs"]):
        found = CliRunner().invoke(
            app,
            ["fit", str(tables / "val.csv"), "-o", str(saved), "--keep-labels", *wrong],
        )
        assert found.exit_code == 2
        assert "--keep-labels" in found.output


@pytest.mark.slow
def test_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.frozen import FrozenEstimator
    from sklearn.naive_bayes import GaussianNB

    bayes = FrozenEstimator(GaussianNB().fit(*class_gaussians(300, 3)[::2]))
    for method in (
        "auto",
        hokical.AutoCalibrator(keep_labels=True),
        "hoki",
        "structured",
    ):
        model = hokical.CalibratedClassifier(bayes, method=method).fit(VAL[0], VAL[2])
        model.certify(*class_gaussians(1000, 4)[::2])
        proba = model.predict_proba(TEST[0])
        labels = model.classes_[proba.argmax(axis=1)]
        assert_array_equal(model.predict(TEST[0]), labels)
        assert_array_equal(model.predict_confidence(TEST[0]), proba.max(axis=1))
        found = model.predict_or_abstain(TEST[0], risk=0.2)
        assert_array_equal(found.labels, labels)
        assert_array_equal(found.confidence, proba.max(axis=1))
        if method != "hoki":
            logits = model.predict_scores(TEST[0])
            assert_array_equal(
                model.classes_[model.calibrator_.predict(logits)], labels
            )
    keeping = hokical.CalibratedClassifier(
        bayes, method=hokical.AutoCalibrator(), keep_labels=True
    ).fit(VAL[0], VAL[2])
    assert_array_equal(keeping.predict(TEST[0]), bayes.predict(TEST[0]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch(cal: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import CalibratedModel, as_module

    rows = torch.tensor(LOGITS, dtype=getattr(torch, dtype))
    expected = cal.predict_proba(rows.numpy()).argmax(axis=1)
    module = as_module(cal)
    shown = module.proba(rows)
    assert shown.dtype == rows.dtype
    for labels in (module(rows).labels, module.labels(rows), shown.argmax(dim=1)):
        assert_array_equal(labels, expected)
    tracked = rows.clone().requires_grad_()  # computed by torch
    assert_array_equal(module(tracked).labels, expected)
    assert_array_equal(module.proba(tracked).argmax(dim=1), expected)
    assert_array_equal(cal.predict(rows), expected)
    assert_array_equal(cal.predict_proba(rows).argmax(dim=1), expected)
    model = CalibratedModel(torch.nn.Identity(), cal).eval()
    assert_array_equal(model(rows).labels, expected)
    assert_array_equal(model.predict_proba(rows).argmax(dim=1), expected)


def test_pipelines_of_transformers(cal: Any) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import CalibratedModel

    class Network(torch.nn.Module):
        def forward(self, rows: Any) -> dict[str, Any]:
            return {"logits": rows}

    rows = torch.tensor(LOGITS, dtype=torch.float32)
    model = CalibratedModel(Network(), cal).eval()
    scores = model.for_pipeline()(rows)["logits"].softmax(dim=1)
    assert_array_equal(scores.argmax(dim=1), model(rows).labels)


def test_logarithms_keep_the_first_maximum() -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch.outputs import log_below_label

    own = np.float32(1.0 / 3000.0)
    proba = torch.full((1, 3000), float(np.nextafter(own, np.float32(0.0))))
    proba[0, 2000] = float(own)
    assert proba.log().argmax() == 0  # the logarithms are the same
    logs = log_below_label(proba, torch.tensor([2000]))
    assert logs.argmax() == logs.softmax(dim=1).argmax() == 2000
    likelier = torch.tensor([[0.3, 0.2, 0.5]])  # than the label that a method keeps
    assert log_below_label(likelier, torch.tensor([1])).argmax() == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("dtype", "precision"),
    [("float32", "float64"), ("float32", "float32"), ("float64", "float64")],
)
def test_onnx(cal: Any, dtype: str, precision: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from hokical.integrations.onnx import export

    model = export(cal, input_dtype=dtype, precision=precision)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rows = LOGITS.astype(dtype)
    labels, confidence, proba = session.run(None, {"logits": rows})
    assert_array_equal(labels, proba.argmax(axis=1))
    assert_array_equal(confidence, proba.max(axis=1))
    assert_array_equal(labels, cal.predict(rows))


def test_metrics_comparisons_and_reports(
    cal: Any, expected: np.ndarray, file: Path
) -> None:
    pair, right = (LOGITS, TEST[2]), (expected == TEST[2]).mean()
    before = (LOGITS.argmax(axis=1) == TEST[2]).mean()
    source = hokical.streams.open_source(*pair)
    assert hokical.evaluate(cal, source)["accuracy"].value == pytest.approx(right)
    found = hokical.compare(VAL[1:], pair, ["uncalibrated", "auto"], subject="auto")
    assert found["auto"].score("accuracy") == pytest.approx(right)
    confidence = cal.predict_confidence(LOGITS).mean()
    assert found["auto"].score("mean_confidence") == pytest.approx(confidence)
    assert found["auto"].may_change_labels
    assert f"was right {before:.1%} of the time" in found.headline
    assert f"is right {right:.1%}" in found.headline
    methods = {each["method"]: each for each in found.to_dict()["methods"]}
    shown = {
        name: each["estimates"]["accuracy"]["value"] for name, each in methods.items()
    }
    assert shown == pytest.approx({"uncalibrated": before, "auto": right}, abs=1e-6)
    again = hokical.evaluate(hokical.load(file), *pair)
    assert again.score("accuracy") == pytest.approx(right)


def test_the_labels_of_topk_are_kept() -> None:
    best = hokical.TopK.from_logits(VAL[1], 2)
    cal = hokical.auto(best, VAL[2])
    assert cal.rule_.preserves_labels
    some = hokical.TopK.from_logits(LOGITS, 2)
    assert_array_equal(cal.predict(some), LOGITS.argmax(axis=1))


#: Rules whose label is the most likely class; others keep the label, however little it
#: has.
LIKELIEST = [name for name in NAMES if name not in ("hoki", "profile")]


def near_ties(rule: Any, rows: np.ndarray) -> np.ndarray:
    """The rows, moved so that two classes are as likely, as far as the logits'
    precision allows.
    """
    moved, at = rows.astype(np.float64), np.arange(len(rows))
    for step in range(30):
        proba = np.maximum(
            to_host(predict_blocks(rule, "proba", as_logits(moved))), 1e-300
        )
        if step == 0:
            first, second = np.argsort(-proba, axis=1, kind="stable")[:, :2].T
            near = np.isfinite(moved[at, second]) & (np.abs(moved[at, second]) < 1e3)
        gap = np.log(proba[at, first]) - np.log(proba[at, second])
        moved[at, second] += np.where(near, np.clip(0.6 * gap, -3.0, 3.0), 0.0)
    return moved.astype(rows.dtype)


@pytest.mark.sample(12)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", LIKELIEST)
@max_examples(12)
@given(seed=seeds, n_classes=class_counts)
def test_the_first_maximum_of_what_is_shown(
    library: str, name: str, seed: int, n_classes: int
) -> None:
    """Rows of every kind, with ties, masked classes and near-ties, in float32 as in
    float64.
    """
    arrays = get_library(library)
    if library == "jax":  # which compiles every shape anew
        n_classes = 2 if n_classes < 7 else 9
    rule, rows = make_case(name, seed, n_classes)
    if isinstance(rule.core, AutoRule):
        core = replace(rule.core, keep_labels=False)
        rule = core if rule.core is rule else replace(rule, rule=core)
    cal = hokical.make("uncalibrated").fit(np.eye(rows.shape[1]), range(rows.shape[1]))
    cal = with_rule(cal, rule)
    for some in (rows, near_ties(rule, rows)):
        for dtype in {np.dtype(np.float32), some.dtype}:  # 1e300 is infinite in float32
            data = (
                some
                if dtype == some.dtype
                else np.clip(some, -1e37, 1e37).astype(dtype)
            )
            data[some == -np.inf] = -np.inf
            with arrays.scope():
                given_rows = arrays.make(np.ascontiguousarray(data))
                labels, confidence, proba = (
                    arrays.read(ask(given_rows))
                    for ask in (cal.predict, cal.predict_confidence, cal.predict_proba)
                )
            assert_array_equal(labels, proba.argmax(axis=1))
            if not rule.preserves_labels:  # others compute it without the probabilities
                assert_array_equal(confidence, proba.max(axis=1))
            assert (proba[data == -np.inf] == 0.0).all()
