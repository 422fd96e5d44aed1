"""Fits on a GPU: for the methods that are mostly products of large matrices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module

import numpy as np

from hokical_paper.running.methods import AUTO, METHODS, RECAL, SLOW, title_of
from hokical_paper.running.results import Result
from hokical_paper.suite.pair_data import PairData

#: The methods that are fitted on the device; the others are fast without one.
ON_DEVICE = (*SLOW, "vecs", "structured", AUTO)


def check_device(device: str | None) -> None:
    """Raise an error, before any work, if PyTorch is missing or has no such device."""
    if device is None:
        return
    try:
        import_module("torch").empty(1, device=device)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "--device needs PyTorch: pip install './paper[torch]' in a clone.",
            name="torch",
        ) from error
    except (RuntimeError, AssertionError) as error:  # such as a PyTorch without CUDA
        raise ValueError(
            f"`device` must be one that PyTorch can use; got {device!r}: "
            f"{str(error).splitlines()[0].rstrip('.')}. Leave it out to use the CPU."
        ) from error


def move_to_fit(data: PairData, device: str) -> tuple[PairData, str | None]:
    """The pair with its validation logits on a device, and the device's name.

    Methods are fitted where these logits are. The test logits stay, so that all methods
    are measured alike; pairs of which only the best classes are known stay too, with
    the name None.
    """
    if not isinstance(data.val_logits, np.ndarray):
        return data, None
    torch = import_module("torch")
    moved = torch.as_tensor(data.val_logits, device=device)
    is_cuda = moved.device.type == "cuda"
    name = torch.cuda.get_device_name(moved.device) if is_cuda else str(moved.device)
    return replace(data, val_logits=moved), name


def device_notes(results: Iterable[Result]) -> list[str]:
    """A sentence for each device with the methods fitted on it; ReCal's is another
    matter.
    """
    by_device: dict[str, list[Result]] = {}
    for result in results:
        if result.method != RECAL and result.facts.get("device"):
            by_device.setdefault(result.facts["device"], []).append(result)
    return [_device_note(device, fits) for device, fits in sorted(by_device.items())]


def _device_note(device: str, fits: list[Result]) -> str:
    most = max(result.n_parallel for result in fits)
    alike: dict[tuple[str, ...], list[str]] = {}
    for method in METHODS:
        pairs = tuple(dict.fromkeys(fit.pair for fit in fits if fit.method == method))
        if pairs:
            alike.setdefault(pairs, []).append(title_of(method))
    listed = [
        f"{', '.join(methods)} on "
        f"{', '.join(pairs) if len(pairs) < 3 else f'{len(pairs)} pairs'}"
        for pairs, methods in alike.items()
    ]
    return f"Fitted on {device}, up to {most} at a time: {'; '.join(listed)}."
