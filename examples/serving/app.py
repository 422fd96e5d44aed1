"""A calibrated classifier behind HTTP: batches in, labels and confidence out, monitored.

    pip install "hokical[onnx,sklearn]" starlette uvicorn
    python make_model.py          # writes model.onnx and monitor.json
    uvicorn --factory app:create_app

The ONNX file holds the network and its calibrator, so the service needs neither PyTorch nor
scikit-learn to answer. Work runs on the server's threads: an onnxruntime session and a
`CalibrationMonitor` may both be shared by threads.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

import numpy as np
import onnxruntime
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hokical import CalibrationMonitor

MODEL = os.environ.get("MODEL", "model.onnx")
MONITOR = os.environ.get("MONITOR", "monitor.json")


class Service:
    """The model and its monitor, shared by all requests."""

    def __init__(self, model: str, monitor: str) -> None:
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.monitor = CalibrationMonitor.load(monitor)

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """{"inputs": (n, features)} -> {"ids": (n,), "labels": (n,), "confidence": (n,)}"""
        inputs = np.asarray(body["inputs"], np.float32)
        labels, confidence = self.session.run(["labels", "confidence"], {self.input: inputs})
        ids = [uuid4().hex for _ in labels]
        self.monitor.update(confidence, ids=ids)
        return {"ids": ids, "labels": labels.tolist(), "confidence": confidence.tolist()}

    def learn_outcome(self, body: dict[str, Any]) -> dict[str, Any]:
        """{"ids": (n,), "correct": (n,)}, once it is known which labels were right."""
        self.monitor.add_labels(body["ids"], body["correct"])
        return {"labelled": self.monitor.n}


def create_app(model: str = MODEL, monitor: str = MONITOR) -> Starlette:
    """The application; one per process."""
    service = Service(model, monitor)

    def answer(work: Any) -> Any:
        async def endpoint(request: Request) -> Response:
            try:
                return JSONResponse(await run_in_threadpool(work, await request.json()))
            except (KeyError, TypeError, ValueError) as error:  # also JSON that is none
                return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 400)
            except Exception as error:  # onnxruntime has exceptions of its own, for wrong shapes
                if "onnxruntime" not in type(error).__module__:
                    raise
                return JSONResponse({"error": str(error)}, 400)

        return endpoint

    async def status(_: Request) -> Response:
        found = await run_in_threadpool(service.monitor.status)
        return JSONResponse(found.to_dict())

    return Starlette(
        routes=[
            Route("/predict", answer(service.predict), methods=["POST"]),
            Route("/outcomes", answer(service.learn_outcome), methods=["POST"]),
            Route("/status", status),
        ]
    )
