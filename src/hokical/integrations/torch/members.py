"""A network that is evaluated several times for each example.

Its members are views of the inputs, several networks, or passes with dropout. Of one
batch they give logits (members, n, classes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from hokical._core.checks import check_count
from hokical.integrations.torch.augmentation import Transform, identity
from hokical.integrations.torch.outputs import GetLogits, find_logits

#: One network, or several by position or by name.
Networks = nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module]
#: Functions of a batch of inputs, by position or by name.
Transforms = Sequence[Transform] | Mapping[str, Transform]

#: Rows of one call of a network, at most: several views go through it together.
ROWS_AT_ONCE = 1024
#: The name of the view that leaves inputs as they are.
_IDENTITY = "identity"
#: Layers that draw at random in training mode and have no running statistics. A layer of
#: a transformer has a fast path in evaluation mode that leaves dropout out.
_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.TransformerEncoderLayer,
)


class Member(NamedTuple):
    """An evaluation: the number of the network, and how its inputs are changed.

    Without a `transform`, they are not touched.
    """

    name: str
    network: int
    transform: Transform | None = None


class MemberNetwork(nn.Module):
    """Several evaluations of each batch: a network whose outputs have a member axis.

    Parameters
    ----------
    networks : nn.Module, or a sequence or a mapping of them
        Names are those of the mapping, else positions: "0", "1", ...
    transforms : sequence or mapping of callables, optional
        Each takes a batch of inputs and returns one. Names are those of the mapping,
        else positions. The identity comes first: it is added unless it is there, as the
        function in `views` or under the name "identity". Of several networks, each sees
        every view.
    dropout : int, optional
        Passes of one network with its dropout on. Their seeds are fixed: the same batch
        has the same answers. Everything else is in the mode of the network, so that
        batch statistics are not touched in evaluation mode; the global random state is
        as before.
    get_logits : callable, optional
        From what a network returns to the logits, as in `CalibratedModel`.
    rows_at_once : int
        The most rows of a batch in which views go through a network; more are divided.
        A view has a batch of its own where networks take more than one input, in
        training mode, and where views differ in shape.

    Attributes
    ----------
    members : tuple of Member
    names : tuple of str

    Examples
    --------
    >>> network = torch.nn.Linear(4, 3)
    >>> views = {"negative": torch.neg, "double": lambda inputs: 2 * inputs}
    >>> members = MemberNetwork(network, views)
    >>> members.names
    ('identity', 'negative', 'double')
    >>> members(torch.zeros(5, 4)).shape
    torch.Size([3, 5, 3])
    """

    def __init__(
        self,
        networks: Networks,
        transforms: Transforms | None = None,
        *,
        dropout: int | None = None,
        get_logits: GetLogits | None = None,
        rows_at_once: int = ROWS_AT_ONCE,
    ) -> None:
        super().__init__()
        check_count("rows_at_once", rows_at_once)
        named = _named_networks(networks)
        self.networks = nn.ModuleList(named.values())
        self.get_logits = get_logits or find_logits
        self.rows_at_once = rows_at_once
        self.has_dropout = dropout is not None
        if dropout is not None:
            check_count("dropout", dropout, least=2)
            _check_dropout(named, transforms)
            self.members = tuple(Member(str(k), 0) for k in range(dropout))
        else:
            self.members = _members_of([*named], transforms)
        self.training = any(network.training for network in named.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def select(self, names: Sequence[str]) -> Self:
        """One that evaluates some of the members, in that order, with their networks."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ValueError(
                f"`transforms` or networks must have the members that the calibrator "
                f"needs, {', '.join(names)}; got {', '.join(self.names)}. Pass those "
                "of the fit, under the same names."
            )
        chosen = [self.members[self.names.index(name)] for name in names]
        used = sorted({member.network for member in chosen})
        selection = type(self)(
            [self.network(number) for number in used],
            get_logits=self.get_logits,
            rows_at_once=self.rows_at_once,
        )
        selection.members = tuple(
            Member(member.name, used.index(member.network), member.transform)
            for member in chosen
        )
        return selection

    def network(self, number: int) -> nn.Module:
        """One of the networks."""
        return self.networks[number]

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """What the networks return for each member, (members, n, classes)."""
        call = _Call(args, kwargs)
        if self.has_dropout:
            logits = self._run_passes(call)
        else:
            logits = [
                rows
                for network, members in self._runs()
                for rows in self._run(network, members, call)
            ]
        self._check_shapes(logits)
        return torch.stack([rows.to(logits[0].device) for rows in logits])

    def _runs(self) -> Iterator[tuple[nn.Module, list[Member]]]:
        """Each network with neighbouring members, which may go through it together."""
        run: list[Member] = []
        for member in self.members:
            if run and run[0].network != member.network:
                yield self.network(run[0].network), run
                run = []
            run.append(member)
        yield self.network(run[0].network), run

    def _run(
        self, network: nn.Module, members: Sequence[Member], call: _Call
    ) -> Iterator[Tensor]:
        """The logits (n, classes) of members that share a network."""
        step = self._views_at_once(network, members, call)
        for start in range(0, len(members), step):
            views = [
                call.transformed(member) for member in members[start : start + step]
            ]
            shape = views[0].shape
            if len(views) > 1 and all(view.shape == shape for view in views):
                rows = self._rows(call.run(network, torch.cat(views)))
                yield from rows.chunk(len(views))
            else:
                yield from (self._rows(call.run(network, view)) for view in views)

    def _views_at_once(
        self, network: nn.Module, members: Sequence[Member], call: _Call
    ) -> int:
        """How many views go through a network in one batch."""
        if len(members) == 1 or network.training or not call.is_single:
            return 1
        if torch.compiler.is_compiling():  # a graph takes batches of any size
            return 1
        return max(1, self.rows_at_once // max(1, len(call.inputs)))

    def _run_passes(self, call: _Call) -> list[Tensor]:
        """The logits (n, classes) of each pass with dropout."""
        if _is_exported():
            raise RuntimeError(
                "passes with dropout cannot be exported: no graph keeps their seeds, "
                "and most runtimes leave dropout out. Export the network and, by "
                "`hokical.integrations.onnx.export`, its calibrator, which takes the "
                "passes (members, n, classes)."
            )
        network = self.network(0)
        logits = []
        with _dropout_on(network), _fixed_state(network) as seed:
            for k in range(len(self.members)):
                seed(k)
                logits.append(self._rows(network(*call.args, **call.kwargs)))
        return logits

    def _rows(self, output: object) -> Tensor:
        """The logits (n, classes) in a network's output."""
        rows = self.get_logits(output)
        rows = rows[:, None] if rows.ndim == 1 else rows
        if rows.ndim != 2:
            raise ValueError(
                "the network must give one row of logits (n, classes) for each example "
                f"to be evaluated several times; got shape {tuple(rows.shape)}. Pool "
                "the probabilities of pixels or tokens, and calibrate these with "
                "`hokical.Dense`."
            )
        return rows

    def _check_shapes(self, logits: Sequence[Tensor]) -> None:
        shape = tuple(logits[0].shape)
        for name, rows in zip(self.names, logits, strict=True):
            if rows.shape != shape:
                raise ValueError(
                    "every member must give logits of the shape of the first, "
                    f"{shape}; {name!r} gives {tuple(rows.shape)}. "
                    "Networks need the same classes, and transformations keep the "
                    "number of examples."
                )


@dataclass(frozen=True)
class _Call:
    """The arguments of a call of a network, of which views change one."""

    args: tuple[object, ...]
    kwargs: dict[str, object]

    @property
    def _key(self) -> str | None:
        """The keyword of the inputs; None if they are the first argument."""
        if self.args:
            return None
        floats = [
            key
            for key, value in self.kwargs.items()
            if isinstance(value, Tensor) and value.is_floating_point()
        ]
        return floats[0] if len(floats) == 1 else ""

    @property
    def inputs(self) -> Tensor:
        """The tensor that transformations change."""
        key = self._key
        inputs = self.args[0] if key is None else self.kwargs.get(key)
        if isinstance(inputs, Tensor):
            return inputs
        raise TypeError(
            "`transforms` change the inputs, a tensor that is the first argument of the "
            "network or its only keyword argument of floats; got "
            f"{len(self.args)} arguments and the keywords {list(self.kwargs)}. Wrap the "
            "network in one that takes such a tensor."
        )

    @property
    def is_single(self) -> bool:
        """Whether the inputs are the only argument."""
        return len(self.args) + len(self.kwargs) == 1

    def transformed(self, member: Member) -> Tensor:
        """The inputs as a member sees them."""
        if member.transform is None:
            return self.inputs
        view = member.transform(self.inputs)
        if isinstance(view, Tensor):
            return view
        raise TypeError(
            f"`transforms` must return a tensor; {member.name!r} returned a "
            f"{type(view).__name__}."
        )

    def run(self, network: nn.Module, inputs: Tensor) -> object:
        """A network's output for inputs in the place of the call's."""
        key = self._key
        if key is None:
            return network(inputs, *self.args[1:], **self.kwargs)
        return network(**{**self.kwargs, key: inputs})


def _named_networks(networks: Networks) -> dict[str, nn.Module]:
    if isinstance(networks, nn.ModuleDict | Mapping):
        named = {str(name): network for name, network in networks.items()}
    elif isinstance(networks, nn.ModuleList | Sequence):
        named = {str(k): network for k, network in enumerate(networks)}
    else:
        named = {"0": networks}
    for name, network in named.items():
        if not isinstance(network, nn.Module):
            raise TypeError(
                f"`model` must be networks, nn.Modules; {name!r} is a "
                f"{type(network).__name__}. Logits that you have are for "
                "`hokical.auto(hokical.Ensemble(logits), labels)`."
            )
    if not named:
        raise ValueError("`model` must hold at least one network; got none.")
    return named


def named_transforms(transforms: Transforms) -> dict[str, Transform]:
    """Transformations by name, the identity first.

    >>> list(named_transforms([torch.neg])), list(named_transforms({"sign": torch.neg}))
    (['0', '1'], ['identity', 'sign'])
    """
    if isinstance(transforms, Mapping):
        named = {str(name): transform for name, transform in transforms.items()}
        identities = [n for n, f in named.items() if f is identity or n == _IDENTITY]
        first = identities[0] if identities else _IDENTITY
        named = {first: named.get(first, identity), **named}
    elif isinstance(transforms, Sequence) and not isinstance(transforms, str):
        changes = [transform for transform in transforms if transform is not identity]
        named = {str(k): transform for k, transform in enumerate([identity, *changes])}
    else:
        raise TypeError(
            "`transforms` must be a mapping of names to functions of a batch of inputs, "
            f"or a sequence of them; got a {type(transforms).__name__}. "
            '`hokical.integrations.torch.views("image")` has some for images.'
        )
    for name, transform in named.items():
        if not callable(transform):
            raise TypeError(
                f"`transforms` must be functions of a batch of inputs; {name!r} is a "
                f"{type(transform).__name__}."
            )
    return named


def _members_of(
    networks: Sequence[str], transforms: Transforms | None
) -> tuple[Member, ...]:
    if transforms is None:
        return tuple(Member(name, k) for k, name in enumerate(networks))
    views = named_transforms(transforms)
    has_networks = len(networks) > 1
    return tuple(
        Member(f"{name}: {view}" if has_networks else view, k, transform)
        for k, name in enumerate(networks)
        for view, transform in views.items()
    )


def _check_dropout(
    networks: Mapping[str, nn.Module], transforms: Transforms | None
) -> None:
    if len(networks) > 1 or transforms is not None:
        raise ValueError(
            "`dropout` must be None with `transforms` or several networks, whose members "
            "differ by more than chance. Choose one of them."
        )
    layers = [*_dropout_layers(networks["0"])]
    if not layers:
        raise ValueError(
            "`dropout` needs a network with layers of dropout, such as nn.Dropout; got "
            "one without. Use `transforms` for views of the inputs."
        )


def _dropout_layers(network: nn.Module) -> Iterator[nn.Module]:
    return (module for module in network.modules() if isinstance(module, _DROPOUT))


def _is_exported() -> bool:
    """Whether the call is recorded as a graph, to be run elsewhere."""
    is_exporting = getattr(torch.compiler, "is_exporting", bool)  # new in torch 2.7
    return bool(is_exporting()) or torch.onnx.is_in_onnx_export()


@contextmanager
def _dropout_on(network: nn.Module) -> Iterator[None]:
    """Layers of dropout in training mode, and nothing else."""
    modes = [(layer, layer.training) for layer in _dropout_layers(network)]
    try:
        for layer, _ in modes:
            layer.training = True
        yield
    finally:
        for layer, training in modes:
            layer.training = training


@contextmanager
def _fixed_state(network: nn.Module) -> Iterator[Callable[[int], None]]:
    """Yield a function that seeds the network's devices; their state is restored."""
    devices = {x.device for x in (*network.parameters(), *network.buffers())}
    unknown = {device.type for device in devices} - {"cpu", "cuda"}
    if unknown:
        raise ValueError(
            "`dropout` needs a network on the CPU or on CUDA devices, whose random "
            f"state can be put back; got {', '.join(sorted(unknown))}."
        )
    gpus = sorted({device.index or 0 for device in devices if device.type == "cuda"})

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(number)
        for index in gpus:
            torch.cuda.default_generators[index].manual_seed(number)

    with torch.random.fork_rng(gpus):
        yield seed
