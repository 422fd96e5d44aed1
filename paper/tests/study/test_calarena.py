"""CalArena: files made in its format, and its one experiment that is at hand."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from typer.testing import CliRunner

from hokical.io import DataFileError
from hokical_paper.cli import app
from hokical_paper.study.calarena import experiments_of, read_benchmark, read_published
from hokical_paper.study.outcomes import judge
from paper.tests.study.test_study import make_scores

#: `cifar10_resnet110` of NN_calibration (MIT), as .npz.
RESNET = Path(
    os.environ.get("HOKICAL_PUBLIC_LOGITS", "."), "cifar10_resnet110_nncal.npz"
)


def group_of(n_classes: int, seed: int) -> dict[str, Any]:
    arrays = {}
    for part, own in (("cal", seed), ("test", seed + 100)):
        logits, labels = make_scores(300, n_classes, own)
        proba = softmax(logits, axis=1).astype(np.float32)
        arrays[f"probas_{part}"] = proba[:, 1] if n_classes == 2 else proba
        arrays[f"labels_{part}"] = labels.astype(np.int32)
    return arrays


STORED = {
    "c10": {"a": group_of(4, 1), "b": group_of(4, 2)},
    "coins": {"a": group_of(2, 3)},
}


def write_results(folder: Path) -> Path:
    folder.mkdir()
    for name in ("TS", "Few"):
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            table = csv.writer(stream)
            scores = (
                f"{name}_{each}" for each in ("brier", "logloss", "ece-15", "time")
            )
            table.writerow(["dataset", "model", "cal_size", "test_size", *scores])
            for data_set, model in (
                ("c10", "a"),
                ("c10", "b"),
                ("coins", "a"),
                ("no", "where"),
            ):
                if name == "TS" or model == "b":
                    table.writerow([data_set, model, 300, 300, 0.5, 1.25, 0.01, 0.1])
    return folder


def test_groups_are_experiments(tmp_path: Path) -> None:
    found = {each.name: each for each in experiments_of(STORED | {"odd": {"a": {}}})}
    assert list(found) == ["c10__a", "c10__b", "coins__a"]
    one, two = found["c10__b"], found["coins__a"]
    assert (one.data_set, one.n_classes, two.n_classes) == ("c10", 4, 2)
    np.testing.assert_allclose(
        softmax(one.val_logits, axis=1), STORED["c10"]["b"]["probas_cal"], atol=1e-6
    )
    np.testing.assert_allclose(
        softmax(two.test_logits, axis=1)[:, 1],
        STORED["coins"]["a"]["probas_test"],
        atol=1e-6,
    )
    theirs = read_published(write_results(tmp_path / "results"), found.values())
    assert [
        (each.method, each.experiment) for each in theirs if each.data_set == "coins"
    ] == [("CalArena TS", "coins__a")]
    assert {(each.log_loss, each.brier) for each in theirs} == {(1.25, 0.5)}
    with pytest.raises(DataFileError, match="found none"):
        read_published(tmp_path, found.values())
    (tmp_path / "results" / "TS.csv").write_text("dataset,model,TS_brier\nc10,a,0.5\n")
    with pytest.raises(DataFileError, match="TS_logloss"):
        read_published(tmp_path / "results", found.values())


def test_the_command_sets_ours_beside_theirs(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py reads CalArena's files")
    path = tmp_path / "tiny-multiclass.h5"
    with h5py.File(path, "w") as stored:
        stored.attrs["problem_type"] = "multiclass"
        for data_set, models in STORED.items():
            for model, arrays in models.items():
                group = stored.create_group(f"{data_set}/{model}")
                for name, array in arrays.items():
                    group.create_dataset(name, data=array, compression="gzip")
    results = write_results(tmp_path / "results")
    words = [
        "calarena",
        str(path),
        "--published",
        str(results),
        "--cache",
        str(tmp_path / "c"),
    ]
    words += ["--methods", "uncalibrated,temps", "--subject", "temps"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    whole = shown.stdout.split("\n\n**")[0]
    assert "CalArena TS | 1.2500" in whole
    assert "CalArena Few" not in whole  # which lacks an experiment
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert found[0]["n_experiments"] == 3
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    with pytest.raises(DataFileError, match="expected groups DATASET/MODEL"):
        read_benchmark(tmp_path / "empty.h5")
    with pytest.raises(DataFileError, match="expected an HDF5 file"):
        read_benchmark(results / "TS.csv")


@pytest.mark.skipif(not RESNET.exists(), reason="no public logits of a ResNet-110 here")
def test_temperature_scaling_is_as_published() -> None:
    """c10/resnet110 of results/cv-multiclass/TS.csv: Brier .0978523, log loss
    .2092613.
    """
    stored = np.load(RESNET)
    group = {}
    for theirs, ours in (("cal", "val"), ("test", "test")):
        proba = softmax(stored[f"{ours}_logits"].astype(np.float64), axis=1).astype(
            np.float32
        )
        group |= {
            f"probas_{theirs}": proba,
            f"labels_{theirs}": stored[f"{ours}_labels"],
        }
    (experiment,) = experiments_of({"c10": {"resnet110": group}})
    found = judge(experiment, "temps")
    assert found.brier == pytest.approx(0.09785229712724686, abs=5e-6)
    assert found.log_loss == pytest.approx(0.20926125347614288, abs=5e-6)
