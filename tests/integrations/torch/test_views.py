"""Views of images against what they should show."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hokical.integrations.torch import views  # noqa: E402

IMAGES = torch.rand(3, 2, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["image", "symbol", "texture"])
def test_views_keep_shape_type_and_the_image_by_itself(kind: str) -> None:
    transforms = views(kind)
    assert next(iter(transforms)) == "identity"
    for name, transform in transforms.items():
        seen = transform(IMAGES)
        assert seen.shape == IMAGES.shape, name
        assert torch.equal(transform(IMAGES[1:2]), seen[1:2]), name
        assert transform(IMAGES.double()).dtype == torch.float64, name
        assert torch.equal(seen, IMAGES) == (name == "identity")


def test_only_photographs_and_textures_are_mirrored() -> None:
    assert "mirror" in views("image")
    assert "mirror" in views("texture")
    assert "mirror" not in views("symbol")


def test_a_shift_moves_by_two_pixels_of_32_and_repeats_the_border() -> None:
    moved = views("image")["right"](IMAGES)
    assert torch.equal(moved[..., 2:], IMAGES[..., :-2])
    assert torch.equal(moved[..., 0], IMAGES[..., 0])
    up = views("image")["up"](IMAGES)
    assert torch.equal(up[..., :-2, :], IMAGES[..., 2:, :])


def test_turns_and_zooms_move_a_dot_to_where_geometry_says() -> None:
    dot = torch.zeros(1, 1, 33, 65)
    dot[0, 0, 16, 52] = 1.0  # 20 pixels to the right of the centre
    left = views("image")["turn left"](dot)[0, 0]
    row, column = divmod(int(left.argmax()), 65)
    assert (16 - row, column - 32) == (2, 20)  # up, as 20 sin(5 degrees) is 1.7
    larger = views("image")["zoom in"](dot)[0, 0]
    assert int(larger.argmax()) % 65 == 32 + 22
    smaller = views("image")["zoom out"](dot)[0, 0]
    assert int(smaller.argmax()) % 65 == 32 + 18


def test_brightness_goes_by_the_image_itself() -> None:
    brighter = views("image")["brighter"](IMAGES)
    rise = (brighter - IMAGES).flatten(1)
    expected = 0.2 * IMAGES.flatten(1).std(dim=1)
    torch.testing.assert_close(rise.mean(dim=1), expected)


def test_quarter_turns_need_squares() -> None:
    with pytest.raises(ValueError, match="square"):
        views("texture")["quarter turn"](IMAGES[..., :20])
    with pytest.raises(ValueError, match="`kind` must be one of"):
        views("photo")
