"""How many options there are, and that a name means the same in every command."""

from __future__ import annotations

from collections import defaultdict

import pytest
import typer

import hokical
from hokical.cli import app
from hokical.cli.console import in_words
from hokical.cli.options import set_options
from tests.cli.running import hokical_command, one_line
from tests.conftest import synthetic_logits

#: Options whose default differs between commands, not their meaning.
HELP_OF_ITS_OWN = {"--output", "--report"}


def options() -> dict[str, list[str]]:
    """The help texts of every option, by its name; one per command that has it."""
    group = typer.main.get_command(app)  # with the options for completion
    found = defaultdict(list)
    for command in (group, *group.commands.values()):  # type: ignore[attr-defined]
        for option in command.params:
            if option.param_type_name == "option":
                found[option.opts[0]].append(option.help)
    return found


def test_there_are_few_options() -> None:
    assert (
        sum(map(len, options().values())) <= 122
    )  # with --ensemble of four commands, what `fit` learns of its members, and --risk
    # and --delta of `export`


def test_an_option_means_the_same_everywhere() -> None:
    for name, texts in options().items():
        assert name.startswith("-")
        assert all(texts), name
        assert len(set(texts)) == 1 or name in HELP_OF_ITS_OWN, name


@pytest.mark.parametrize(
    "command",
    [
        "fit val.csv -o a.json -o b.json",
        "fit val.csv --method temps --method=auto",
        "apply a.json new.csv --risk 0.1 --risk 0.2",
        "fit val.csv --keep-labels --no-keep-labels",
    ],
)
def test_an_option_of_one_value_is_given_once(command: str) -> None:
    error = one_line(hokical_command(*command.split()))
    assert "takes one value; it was given more than once" in error


def test_errors_of_the_library_are_told_in_words_of_the_command_line() -> None:
    """`apply --coverage 0.9 --by group` before a `certify` with groups, and rows of
    the fit.
    """
    logits, labels = synthetic_logits(200, 3, seed=0)
    cal = hokical.make("temps").fit(logits, labels)
    with pytest.raises(ValueError, match="certify") as error:
        cal.predict_set(logits, coverage=0.9, by="group")
    said = in_words(str(error.value))
    assert (
        "--by 'group' has no groups to go by. Run `hokical certify --groups COLUMN`"
        in said
    )
    with pytest.raises(ValueError, match="--look-alike") as error:
        cal.certify(logits, labels)
    assert "pass --look-alike." in in_words(str(error.value))


def test_whole_numbers_are_set_in_every_form() -> None:
    for text in ("n_bins=20", "n_bins=20.0", "n_bins = 2e1"):
        n_bins = set_options(hokical.make("hoki"), [text]).n_bins
        assert n_bins == 20
        assert type(n_bins) is int


@pytest.mark.parametrize("value", ["1e999", "-1e999", "20.5", "true", "many"])
def test_what_is_no_whole_number_is_refused(value: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be a whole number, as the"):
        set_options(hokical.make("hoki"), [f"n_bins={value}"])
