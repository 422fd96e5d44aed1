"""A few rounds of every attack; `make soak` runs thousands."""

from __future__ import annotations

import pytest

from tests.soak import ATTACKS, __main__
from tests.soak.running import Hung, run_for, run_round

#: Rounds per attack; those of processes and fits are slow.
ROUNDS = {
    name: 1 if name.startswith(("kill", "two", "full", "threads")) else 12
    for name in ATTACKS
}
ROUNDS |= {"extreme logits": 4, "stability against twins": 2, "forged calibrators": 60}
ROUNDS |= {"forged documents": 40}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ATTACKS)
def test_a_few_rounds(name: str) -> None:
    for seed in range(ROUNDS[name]):
        assert run_round(ATTACKS[name], seed)


def test_failures_are_counted_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(rng: object, folder: object) -> str:
        raise AssertionError("a row was lost")

    def hang(rng: object, folder: object) -> str:
        raise Hung("no end")

    assert run_for(lose, 0.0, 7).failures == {7: "AssertionError: a row was lost"}
    monkeypatch.setattr(__main__, "ATTACKS", {"lose": lose, "hang": hang})
    assert __main__.main(0.0, 0, "") == 1
    assert "2 FAILED" in capsys.readouterr().out
    monkeypatch.setattr(__main__, "ATTACKS", {"idle": lambda rng, folder: "well"})
    assert __main__.main(0.0, 0, "") == 0
    assert "nothing lost, wrong or hung" in capsys.readouterr().out


@pytest.mark.soak
def test_ten_minutes() -> None:
    assert __main__.main(600.0, 0, "") == 0
