"""Arrays by name, read when they are asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What every format gives: its arrays by name. A file with one array and no name for it uses "".
Arrays = Mapping[str, NDArray[Any]]

NAMELESS = ""


class LazyArrays(Mapping[str, NDArray[np.generic]]):
    """The arrays of a file, of which only the wanted ones are ever read.

    A file may hold other things (images, objects), which must neither cost time nor cause errors.
    """

    def __init__(self, names: Sequence[str], read: Callable[[str], NDArray[Any]]) -> None:
        self._names = list(names)
        self._read = read

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
