"""The serving example: right answers, errors as 400, the status, and eight clients
at once.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import hokical

for _module in ("starlette", "uvicorn", "onnx", "onnxruntime", "ndonnx"):
    pytest.importorskip(_module, reason=f"the serving example needs {_module}")

import uvicorn  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "serving"
CLIENTS, BATCHES, ROWS = 8, 6, 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What `make_model.py` writes."""
    place = tmp_path_factory.mktemp("serving")
    sys.path.insert(0, str(FOLDER))
    try:
        import make_model

        make_model.main(place, "temps")
        yield place
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    import app

    files = (folder / name for name in ("model.onnx", "monitor.json", "monitor.sqlite"))
    served = app.create_app(*map(str, files))
    server = uvicorn.Server(
        uvicorn.Config(served, port=0, log_level="error", ws="none")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def post(address: str, body: Any) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def metric(address: str, name: str) -> float:
    with urllib.request.urlopen(f"{address}/status", timeout=60) as reply:
        return float(json.load(reply)[name])


@pytest.mark.slow
def test_eight_clients_get_the_answers_of_the_calibrator(
    address: str, folder: Path
) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[1200 : 1200 + ROWS * BATCHES] / 16, y[1200 : 1200 + ROWS * BATCHES]
    alone = [
        post(f"{address}/predict", {"inputs": part.tolist()})
        for part in np.split(X, BATCHES)
    ]

    def client(_: int) -> None:
        for part, truth, expected in zip(
            np.split(X, BATCHES), np.split(y, BATCHES), alone, strict=True
        ):
            found = post(f"{address}/predict", {"inputs": part.tolist()})
            assert found["labels"] == expected["labels"]
            np.testing.assert_allclose(
                found["confidence"], expected["confidence"], rtol=1e-6
            )
            correct = np.equal(found["labels"], truth).tolist()
            post(f"{address}/outcomes", {"ids": found["ids"], "correct": correct})

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    total = CLIENTS * BATCHES * ROWS
    assert metric(address, "n") == total


@pytest.mark.parametrize("body", [{}, {"inputs": [[1.0]]}, {"inputs": "text"}, 3])
def test_bad_requests_are_answered_with_400(address: str, body: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(f"{address}/predict", body)
    with caught.value as reply:
        assert reply.code == 400
        assert json.load(reply)["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"ids": ["unknown"], "correct": [True]},
        {"ids": [], "correct": [True]},
        {"ids": ["unknown"], "correct": [1.5]},
    ],
)
def test_bad_outcomes_are_answered_with_400(address: str, body: Any) -> None:
    before = metric(address, "n")
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(f"{address}/outcomes", body)
    with caught.value as reply:
        assert reply.code == 400
    assert metric(address, "n") == before


def test_metrics_are_those_of_the_status(address: str) -> None:
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    found = dict(line.split() for line in lines if not line.startswith("#"))
    assert float(found["hokical_outcomes_total"]) == metric(address, "n")
    assert float(found["hokical_predictions_total"]) == metric(address, "n_observed")
    assert set(found) == {
        line.split()[2] for line in lines if line.startswith("# TYPE")
    }


def test_processes_share_a_monitor(folder: Path, tmp_path: Path) -> None:
    """Predictions of one, outcomes at the other, in any order; saved and read again."""
    from store import MonitorStore

    path, start = str(tmp_path / "monitor.sqlite"), str(folder / "monitor.json")
    one, other = (MonitorStore(path, start, save_every=7, keep=1000) for _ in range(2))
    rng, alone = np.random.default_rng(0), hokical.CalibrationMonitor.load(start)
    for k in range(30):
        ids, confidence = (
            [f"{k}-{i}" for i in range(5)],
            rng.uniform(0.5, 1.0, 5).tolist(),
        )
        correct = (rng.random(5) < confidence).tolist()
        (one, other)[k % 2].add_predictions(ids, confidence)
        if k % 3 == 0:
            other.monitor()
        (other, one)[k % 2].add_outcomes(ids, correct)
        alone.update(confidence, ids=ids).add_labels(ids, correct)
    expected = alone.status().to_dict()
    assert (
        one.monitor().status().to_dict()
        == other.monitor().status().to_dict()
        == expected
    )
    one.save()
    again = MonitorStore(path, start)
    assert again.monitor().status().to_dict() == expected
    for ids in (["0-0"], ["1-1", "new"], ["new", "new"]):
        with pytest.raises(ValueError, match="must wait for an outcome"):
            again.add_outcomes(ids, [True] * len(ids))
    assert again.monitor().n == expected["n"]


@pytest.mark.slow
def test_two_workers_accept_all_outcomes(folder: Path, tmp_path: Path) -> None:
    """Behind one port, so that nobody knows which process answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["--factory", "app:create_app", "--workers", "2", "--port", str(port)]
    files = {"MODEL": "model.onnx", "MONITOR": "monitor.json"}
    places = {name: str(folder / file) for name, file in files.items()}
    places["STORE"] = str(tmp_path / "monitor.sqlite")
    service = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *command, "--log-level", "error"],
        cwd=FOLDER,
        env={**os.environ, **places},
    )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                metric(address, "n")
                break
            except OSError:
                assert service.poll() is None
                time.sleep(0.1)
        inputs = (load_digits().data[1200:1260] / 16).tolist()
        for row in inputs:
            found = post(f"{address}/predict", {"inputs": [row]})
            post(f"{address}/outcomes", {"ids": found["ids"], "correct": [True]})
        assert {metric(address, "n") for _ in range(6)} == {60.0}
    finally:
        service.terminate()
        service.wait(60)


def test_a_loaded_calibrator_may_be_shared_by_threads(folder: Path) -> None:
    cal = hokical.load(folder / "cal.json")
    batches = [
        np.random.default_rng(seed).normal(size=(50, 10)) for seed in range(CLIENTS)
    ]
    alone = [cal.predict_confidence(batch) for batch in batches]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(3):
            for mine, theirs in zip(
                alone, pool.map(cal.predict_confidence, batches), strict=True
            ):
                np.testing.assert_array_equal(mine, theirs)
