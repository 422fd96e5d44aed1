"""`--class-axis` and `--ignore-label`: maps and tokens from the command line.

The reference implementation is the command on a file of the flattened positions that count.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hokical import Gaussian, load
from hokical.calibrators import make
from hokical.dense import Dense, open_dense
from tests.cli.test_cli import hokical_command, one_line

AXIS = ("--class-axis", 1)
DENSE = (*AXIS, "--ignore-label", 255)
FAST = ("--noise", "gaussian:2.5")


def maps(seed: int, n: int = 30) -> dict[str, np.ndarray]:
    """Logits (n, 4, 6, 5) and labels (n, 6, 5), the first row of each without a label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=(n, 6, 5))
    logits = 3 * (rng.normal(size=(n, 4, 6, 5)) + 2 * np.moveaxis(np.eye(4)[labels], -1, 1))
    labels[:, 0] = 255
    return {"logits": logits.astype(np.float32), "labels": labels.astype(np.uint8)}


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def flatten(logits: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    kept = labels != 255
    return {"logits": np.moveaxis(logits, 1, -1)[kept], "labels": labels[kept]}


@pytest.fixture
def val(tmp_path: Path) -> Path:
    return save(tmp_path / "val.npz", **maps(0))


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    return save(tmp_path / "test.npz", **maps(1))


@pytest.fixture
def calibrator(tmp_path: Path, val: Path) -> Path:
    path = tmp_path / "cal.json"
    assert hokical_command("fit", val, "-o", path, *DENSE, *FAST).code == 0
    return path


@pytest.mark.parametrize("options", [FAST, ("--method", "temps"), ("--method", "irm")])
def test_fit_is_that_of_the_flattened_positions(
    tmp_path: Path, val: Path, options: tuple[str, ...]
) -> None:
    flat = save(tmp_path / "flat.npz", **flatten(**maps(0)))
    dense_json, flat_json = tmp_path / "dense.json", tmp_path / "flat.json"
    found = hokical_command("fit", val, "-o", dense_json, *DENSE, *options, "--json").json
    twin = hokical_command("fit", flat, "-o", flat_json, *options, "--json").json
    assert found["examples"] == twin["examples"] == 30 * 25
    assert found["accuracy"] == pytest.approx(twin["accuracy"], rel=1e-12)
    logits = np.load(flat)["logits"]
    saved = [Dense.load(path).predict_confidence(logits) for path in (dense_json, flat_json)]
    np.testing.assert_allclose(*saved, rtol=1e-9)


def test_fit_speaks_of_positions_and_takes_several_labels_to_ignore(tmp_path: Path) -> None:
    """Tokens: the classes on the last axis, and two labels that do not count."""
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=(50, 8))
    tokens = 2 * (rng.normal(size=(50, 8, 3)) + 2 * np.eye(3)[labels])
    labels[:, 6], labels[:, 7] = -100, 9
    path = save(tmp_path / "tokens.npz", logits=tokens, labels=labels)
    ignored = ("--ignore-label", -100, "--ignore-label", 9)
    found = hokical_command(
        "fit", path, "-o", tmp_path / "cal.json", "--class-axis", -1, *ignored, *FAST
    )
    assert found.code == 0, found.err
    assert "300 positions, 3 classes" in found.out


def test_plain_logits_are_maps_of_one_position(tmp_path: Path) -> None:
    flat = save(tmp_path / "flat.npz", **flatten(**maps(0)))
    plain, dense = tmp_path / "plain.json", tmp_path / "dense.json"
    assert hokical_command("fit", flat, "-o", plain, *FAST).code == 0
    assert hokical_command("fit", flat, "-o", dense, "--class-axis", -1, *FAST).code == 0
    assert load(plain).stamp == load(dense).stamp


def test_labels_from_another_file(tmp_path: Path, calibrator: Path) -> None:
    arrays, path = maps(0), tmp_path / "again.json"
    np.save(tmp_path / "maps.npy", arrays["logits"])
    np.save(tmp_path / "truth.npy", arrays["labels"])
    given = ("fit", tmp_path / "maps.npy", "-o", path, *DENSE, *FAST)
    assert "--labels" in one_line(hokical_command(*given))
    assert hokical_command(*given, "--labels", tmp_path / "truth.npy").code == 0
    assert load(path).stamp == load(calibrator).stamp


def test_fit_takes_some_positions_of_each_item(tmp_path: Path, val: Path) -> None:
    path = tmp_path / "cal.json"
    words = ("fit", val, "-o", path, *DENSE, *FAST, "--max-positions-per-item", 7, "--seed", 3)
    ran = hokical_command(*words)
    assert "210 positions" in ran.out, ran.err
    twin = Dense(
        make("hoki", noise=Gaussian(2.5)),
        class_axis=1,
        ignore_label=255,
        max_positions_per_item=7,
        random_state=3,
    ).fit(**maps(0))
    logits = maps(1)["logits"]
    found = Dense.load(path, class_axis=1).predict_confidence(logits)
    np.testing.assert_array_equal(found, twin.predict_confidence(logits))


def test_the_part_that_was_chosen_is_said(tmp_path: Path, calibrator: Path) -> None:
    parts = {f"val_{name}": array for name, array in maps(0).items()}
    parts |= {f"test_{name}": array for name, array in maps(1, n=9).items()}
    path = save(tmp_path / "both.npz", **parts)
    fitted = hokical_command("fit", path, "-o", tmp_path / "new.json", *DENSE, *FAST)
    assert f"Using the val part of {path} (logits of shape (30, 4, 6, 5))." in fitted.err
    applied = hokical_command("apply", calibrator, path, "-o", tmp_path / "out.npz", *AXIS)
    assert f"Using the test part of {path} (logits of shape (9, 4, 6, 5))." in applied.err
    assert "part of" not in hokical_command("evaluate", tmp_path / "val.npz", *DENSE).err


def test_evaluate_measures_all_positions_with_bounds_and_intervals_by_item(
    held_out: Path, calibrator: Path
) -> None:
    words = ("evaluate", held_out, "--calibrator", calibrator, *DENSE, "--bins", 10, "--full")
    ran = hokical_command(*words, "--json")
    model = Dense.load(calibrator, class_axis=1, ignore_label=255)
    library = model.evaluate(**open_dense(held_out), n_bins=10, full=True)
    assert list(ran.json) == ["uncalibrated", "hoki"]
    found = ran.json["hoki"]
    values = {name: estimate.value for name, estimate in library.estimates.items()}
    assert {name: each["value"] for name, each in found["estimates"].items()} == values
    assert found["n"] == 30 * 25
    assert found["bounds"] == pytest.approx(library.bounds)
    assert found["estimates"]["ece"]["low"] == pytest.approx(library["ece"].low)
    assert "by item" in ran.err
    assert "test.npz: 750 positions" in hokical_command(*words).out


def test_evaluate_agrees_with_the_flattened_positions(tmp_path: Path, held_out: Path) -> None:
    flat = save(tmp_path / "flat.npz", **flatten(**maps(1)))
    found = hokical_command("evaluate", held_out, *DENSE, "--json").json["uncalibrated"]
    twin = hokical_command("evaluate", flat, "--resamples", 0, "--json").json["uncalibrated"]
    for name in ("accuracy", "mean_confidence", "ece", "brier", "log_loss"):
        assert found["estimates"][name]["value"] == pytest.approx(twin["estimates"][name]["value"])


@pytest.mark.parametrize("case", ["weights", "no items"])
def test_evaluate_promises_nothing_where_no_bound_holds(tmp_path: Path, case: str) -> None:
    arrays, axis = maps(1), 1
    if case == "weights":
        arrays["sample_weight"] = np.linspace(1.0, 2.0, 30)
    else:  # the classes on the first axis, so that it is not the items'
        arrays["logits"], axis = np.moveaxis(arrays["logits"], 1, 0), 0
    path = save(tmp_path / "maps.npz", **arrays)
    ran = hokical_command("evaluate", path, "--class-axis", axis, "--ignore-label", 255)
    assert ran.code == 0, ran.err
    assert "% confidence the true" not in ran.out
    assert "by item" not in ran.err
    assert ("weights in" in ran.err) == (case == "weights")


def test_apply_writes_maps(tmp_path: Path, held_out: Path, calibrator: Path) -> None:
    out = tmp_path / "out.npz"
    ran = hokical_command("apply", calibrator, held_out, "-o", out, *DENSE, "--proba")
    assert ran.code == 0, ran.err
    assert "positions        900" in ran.out
    model, logits = Dense.load(calibrator, class_axis=1), maps(1)["logits"]
    with np.load(out) as found:
        assert found["labels"].shape == found["confidence"].shape == (30, 6, 5)
        assert np.array_equal(found["labels"], model.predict(logits))
        assert np.array_equal(found["confidence"], model.predict_confidence(logits))
        assert np.array_equal(found["probabilities"], model.predict_proba(logits))


def test_apply_leaves_masked_positions_out(tmp_path: Path, calibrator: Path) -> None:
    logits, mask = maps(1)["logits"], np.ones((30, 6, 5), bool)
    mask[:, :, 4] = False
    logits[:, :, :, 4] = np.nan
    path, out = save(tmp_path / "maps.npz", logits=logits, mask=mask), tmp_path / "out.npz"
    found = hokical_command("apply", calibrator, path, "-o", out, *AXIS, "--json").json
    with np.load(out) as arrays:
        assert np.array_equal(arrays["labels"] == -1, ~mask)
        assert np.array_equal(np.isnan(arrays["confidence"]), ~mask)
        assert found["mean_confidence"] == pytest.approx(arrays["confidence"][mask].mean())
    assert found["examples"] == mask.sum()
    np.savez(path, logits=logits, mask=np.zeros_like(mask))
    nothing = hokical_command("apply", calibrator, path, "-o", out, *AXIS, "--json").json
    assert (nothing["examples"], nothing["mean_confidence"]) == (0, None)


def test_a_risk_needs_a_certified_calibrator(tmp_path: Path, calibrator: Path) -> None:
    mask = np.arange(5) < np.full((30, 6, 1), 3)
    path = save(tmp_path / "maps.npz", logits=maps(1)["logits"], mask=mask)
    out = tmp_path / "out.npz"
    words = ("apply", calibrator, path, "-o", out, *AXIS, "--risk", 0.3, "--json")
    assert "hokical certify CALIBRATOR FILE" in one_line(hokical_command(*words))
    assert not out.exists()
    model = Dense.load(calibrator, class_axis=1, ignore_label=255).certify(**maps(2, n=300))
    model.save(calibrator)
    found = hokical_command(*words).json
    twin = model.predict_or_abstain(maps(1)["logits"], risk=0.3, mask=mask)
    assert found["guarantee"] == twin.guarantee
    assert found["accepted_share"] == pytest.approx(twin.accepted[mask].mean())
    assert found["accepted_share"] > 0
    with np.load(out) as arrays:
        assert np.array_equal(arrays["accepted"], twin.accepted)
    save(path, logits=maps(1)["logits"], mask=np.zeros_like(mask))
    assert hokical_command(*words).json["accepted_share"] is None


def test_bad_logits_are_not_blamed_on_the_risk(tmp_path: Path, calibrator: Path) -> None:
    model = Dense.load(calibrator, class_axis=1, ignore_label=255).certify(**maps(2, n=300))
    model.save(calibrator)
    logits = maps(1)["logits"]
    logits[0, 2, 3, 4] = np.nan
    path = save(tmp_path / "bad.npz", logits=logits)
    words = ("apply", calibrator, path, "-o", tmp_path / "out.npz", *AXIS, "--risk")
    said = one_line(hokical_command(*words, 0.3))
    assert "at position (0, 3, 4)" in said
    assert "--risk" not in said
    assert "--risk / --coverage / --delta" in one_line(hokical_command(*words, 1.5))


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("fit val.npz -o new.json --ignore-label 255", "needs --class-axis"),
        ("evaluate val.npz --ignore-label 255", "needs --class-axis"),
        ("apply cal.json val.npz -o new.npz --ignore-label 255", "needs --class-axis"),
        ("fit val.npz -o new.json --max-positions-per-item 9", "needs --class-axis"),
        ("fit val.npz -o new.json", "have --class-axis, the axis"),
        ("fit bare.npz -o new.json", "have --class-axis, the axis"),
        ("evaluate val.npz", "found shape (30, 4, 6, 5)"),
        ("apply cal.json val.npz -o new.npz", "have --class-axis, the axis"),
        (
            "fit val.npz -o new.json --class-axis 0 --max-positions-per-item 9",
            "`--max-positions-per-item` needs items",
        ),
        ("fit val.npz -o new.json --class-axis 1", "give `--ignore-label 255`"),
        ("fit val.npz -o new.json --class-axis -1 --ignore-label 255", "fit `--class-axis 1`"),
        ("fit val.npz -o new.json --class-axis 4", "from -4 to 3"),
        ("fit *.npz -o new.json --class-axis 1", "several files"),
        ("fit parts -o new.json --class-axis 1", "several files"),
        ("fit table.csv -o new.json --class-axis 1", ".npz and .npy"),
        ("fit best.npz -o new.json --class-axis 1", "`topk_values`"),
        ("evaluate val.npz --class-axis 3", "fit `--class-axis 1`"),
        ("evaluate bare.npz --class-axis 1", "--labels"),
        ("evaluate bad.npz --class-axis 1 --ignore-label 255", "NaN for class 2 at position"),
        ("evaluate three.npz --calibrator cal.json --class-axis 1", "three.npz"),
        ("apply cal.json val.npz -o new.npz --class-axis 3", "4 classes of the fit"),
        ("apply cal.json val.npz -o new.csv --class-axis 1", "ends in .npz"),
        ("apply cal.json val.npz -o new.parquet --class-axis 1", "ends in .npz"),
        ("apply cal.json bad.npz -o new.npz --class-axis 1", "at position (0, 3, 4)"),
        ("apply cal.json val.npz -o new.npz --class-axis 1 --scheduler tcp://a:1", "--scheduler"),
        ("apply cal.json parts -o new.npz --class-axis 1", "several files"),
    ],
)
def test_wrong_combinations_end_in_one_line(
    tmp_path: Path,
    val: Path,
    calibrator: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = maps(0)
    save(tmp_path / "bare.npz", logits=arrays["logits"])
    save(tmp_path / "three.npz", logits=arrays["logits"][:, :3], labels=arrays["labels"] % 3)
    ranks = {"topk_values": [[2.0, 1.0]], "topk_indices": [[3, 0]], "n_classes": 5, "labels": [3]}
    save(tmp_path / "best.npz", **{name: np.asarray(value) for name, value in ranks.items()})
    arrays["logits"][0, 2, 3, 4] = np.nan
    save(tmp_path / "bad.npz", **arrays)
    (tmp_path / "table.csv").write_text("logit_0,logit_1,label\n1.0,2.0,1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.parquet").touch()
    assert says in one_line(hokical_command(*words.split()))
    assert not list(tmp_path.glob("new*"))
