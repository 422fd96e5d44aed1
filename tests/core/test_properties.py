"""Values that are computed once."""

from __future__ import annotations

from dataclasses import dataclass

from hokical._core.properties import cached_property, memoize


def test_a_property_is_computed_once_per_object() -> None:
    calls = []

    @dataclass(frozen=True)
    class Box:
        size: int

        @cached_property
        def volume(self) -> int:
            """Its volume."""
            calls.append(self.size)
            return self.size**3

    box, other = Box(2), Box(3)
    assert (box.volume, box.volume, other.volume) == (8, 8, 27)
    assert calls == [2, 3]
    assert Box.volume.__doc__ == "Its volume."
    box.__dict__["volume"] = 5
    assert box.volume == 5


def test_a_function_is_asked_once_per_arguments() -> None:
    calls = []

    @memoize
    def area(width: int, height: int = 1) -> int:
        calls.append((width, height))
        return width * height

    assert (area(2, 3), area(2, 3), area(2)) == (6, 6, 2)
    assert calls == [(2, 3), (2,)] or calls == [(2, 3), (2, 1)]
    assert area.__name__ == "area"
