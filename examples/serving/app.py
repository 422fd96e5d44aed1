"""A calibrated classifier behind HTTP: batches in, labels and confidence out,
monitored.

    pip install "../..[onnx,sklearn]" starlette uvicorn
    python make_model.py          # writes model.onnx and monitor.json
    uvicorn --factory app:create_app --workers 2

The ONNX file holds the network and its calibrator, so the service needs neither PyTorch
nor scikit-learn to answer. Work runs on the server's threads, which share an
onnxruntime session; the monitor is shared by all processes, and saved, in a SQLite
database.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import numpy as np
import onnxruntime
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from store import MonitorStore

MODEL = os.environ.get("MODEL", "model.onnx")
MONITOR = os.environ.get("MONITOR", "monitor.json")
STORE = os.environ.get("STORE", "monitor.sqlite")


class Service:
    """The model and its monitor, shared by all requests."""

    def __init__(self, model: str, monitor: str, store: str) -> None:
        self.session = onnxruntime.InferenceSession(
            model, providers=["CPUExecutionProvider"]
        )
        self.input = self.session.get_inputs()[0].name
        self.store = MonitorStore(store, monitor)

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """{"inputs": (n, features)} -> {"ids": (n,), "labels": (n,), "confidence":
        (n,)}
        """
        inputs = np.asarray(body["inputs"], np.float32)
        labels, confidence = self.session.run(
            ["labels", "confidence"], {self.input: inputs}
        )
        ids = [uuid4().hex for _ in labels]
        self.store.add_predictions(ids, confidence.tolist())
        return {
            "ids": ids,
            "labels": labels.tolist(),
            "confidence": confidence.tolist(),
        }

    def learn_outcome(self, body: dict[str, Any]) -> dict[str, Any]:
        """{"ids": (n,), "correct": (n,)}, once it is known which labels were right."""
        self.store.add_outcomes(body["ids"], body["correct"])
        return {"added": len(body["ids"])}

    def status(self) -> dict[str, Any]:
        """The monitor's status as JSON."""
        return self.store.monitor().status().to_dict()

    def metrics(self) -> str:
        """The status as Prometheus reads it: the same from every process."""
        status = self.store.monitor().status()
        numbers = {
            "predictions_total": ("counter", status.n_observed, "Predictions so far."),
            "outcomes_total": (
                "counter",
                status.n,
                "Predictions whose outcome is known.",
            ),
            "waiting": (
                "gauge",
                status.n_waiting,
                "Predictions that wait for their outcome.",
            ),
            "accuracy": ("gauge", status.accuracy, "Accuracy of the newest outcomes."),
            "mean_confidence": (
                "gauge",
                status.mean_confidence,
                "Their mean confidence.",
            ),
            "ece": ("gauge", status.ece.value, "Their expected calibration error."),
            "alarm": ("gauge", int(status.alarmed), "1 after an alarm was raised."),
        }
        lines = []
        for name, (kind, value, text) in numbers.items():
            lines += [f"# HELP hokical_{name} {text}", f"# TYPE hokical_{name} {kind}"]
            lines.append(f"hokical_{name} {'NaN' if value != value else value}")
        return "\n".join(lines) + "\n"


def create_app(
    model: str = MODEL, monitor: str = MONITOR, store: str = STORE
) -> Starlette:
    """The application; one per process."""
    service = Service(model, monitor, store)

    def answer(work: Any) -> Any:
        async def endpoint(request: Request) -> Response:
            try:
                return JSONResponse(await run_in_threadpool(work, await request.json()))
            except (KeyError, TypeError, ValueError) as error:  # also JSON that is none
                return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 400)
            except (
                Exception
            ) as error:  # onnxruntime has exceptions of its own, for wrong shapes
                if "onnxruntime" not in type(error).__module__:
                    raise
                return JSONResponse({"error": str(error)}, 400)

        return endpoint

    async def status(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(service.status))

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(await run_in_threadpool(service.metrics))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.store.save)

    return Starlette(
        routes=[
            Route("/predict", answer(service.predict), methods=["POST"]),
            Route("/outcomes", answer(service.learn_outcome), methods=["POST"]),
            Route("/status", status),
            Route("/metrics", metrics),
        ],
        lifespan=lifespan,
    )
