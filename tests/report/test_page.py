"""The page as text: whole, self-contained, and safe with any names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hokical import evaluate
from hokical._core.storage import json_values
from hokical.io import DataFileError
from hokical.report import write_report
from tests.conftest import synthetic_logits

from .conftest import embedded

Render = Callable[[Any], str]
HOSTILE = '</script><img src=x onerror="document.title=1">&<!--'


class Elements(HTMLParser):
    """Tags with their attributes, and the text of the table's cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture
def render(tmp_path: Path) -> Callable[[Any], str]:
    return lambda found: found.to_html(tmp_path / "page.html").read_text(
        encoding="utf-8"
    )


def test_the_table_is_plain_html(comparison: Any, render: Render) -> None:
    page = render(comparison)
    assert f"{comparison['hoki'].score('ece'):.4f}" in page
    assert f"<h1>{comparison['hoki'].verdict}</h1>" in page
    assert comparison["hoki"].details in page
    elements = Elements(page)
    scopes = [attributes.get("scope") for attributes in elements.named("th")]
    assert scopes.count("row") == len(comparison.results)
    assert None not in scopes
    assert page.count("(best)") >= 5
    assert "changes labels" in page
    assert "Temperature scaling (temps)" in page
    assert (
        "nan" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL).lower()
    )


def test_one_method_is_compared_with_none(comparison: Any, render: Render) -> None:
    page = render(replace(comparison, results=(comparison["hoki"],), subject="hoki"))
    for words in ("(best)", "marked ★", "log loss against", "The methods"):
        assert words not in page
    assert "The scores" in page


def test_each_method_has_a_headline_and_the_chosen_one_alone_a_bound(
    comparison: Any, render: Render
) -> None:
    for method in embedded(render(comparison))["methods"]:
        verdict, details = method["headline"]
        assert verdict == comparison[method["name"]].verdict
        assert ("the calibration error is below" in details) == (
            method["name"] == comparison.subject
        )


def test_title_date_and_names_of_the_data_are_shown(
    comparison: Any, tmp_path: Path
) -> None:
    hoki = replace(
        comparison["hoki"], data=replace(comparison["hoki"].data, name="<test>.npz")
    )
    altered = replace(comparison, results=(hoki,), tested_on_validation=True)
    page = altered.to_html(tmp_path / "r.html", title="Digits & more").read_text(
        "utf-8"
    )
    assert "<title>Digits &amp; more</title>" in page
    assert "<dd>&lt;test&gt;.npz: 2,000 examples of 5 classes</dd>" in page
    assert "Fitted and measured on the same examples" in page
    assert re.search(r"<dt>Date</dt><dd>\d{4}-\d\d-\d\d</dd>", page)
    assert re.search(r"<dd>hokical \S+, python \S+, numpy \S+, scipy \S+</dd>", page)


def test_methods_that_were_left_out_are_named(comparison: Any, render: Render) -> None:
    page = render(replace(comparison, skipped={"platt": "it is for two classes"}))
    assert "<strong>platt</strong>: left out: it is for two classes." in page


def test_nothing_points_outside(comparison: Any, render: Render) -> None:
    page = render(comparison)
    for tag, attributes in Elements(page).found:
        assert tag not in ("link", "iframe", "img", "object")
        assert "src" not in attributes
        assert "style" not in attributes  # the policy would refuse it
        assert (attributes.get("href") or "#").startswith("#")
    assert set(re.findall(r"https?://[^\"'\s]+", page)) == {
        "http://www.w3.org/2000/svg"
    }


def test_the_policy_allows_this_style_and_this_script_only(
    comparison: Any, render: Render
) -> None:
    page = render(comparison)
    policy = Elements(page).named("meta")[1]["content"] or ""
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        assert text is not None
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_names_and_notes_cannot_break_out(comparison: Any, render: Render) -> None:
    odd = replace(comparison["temps"], name=HOSTILE)
    altered = replace(
        comparison, results=(comparison["uncalibrated"], odd), subject=HOSTILE
    )
    page = render(altered)
    assert embedded(page)["chosen"] == HOSTILE
    assert Elements(page).named("img") == []
    assert page.count("<script") == 2


def test_the_same_comparison_gives_the_same_bytes(
    comparison: Any, render: Render
) -> None:
    assert render(comparison) == render(comparison)


def test_writing_is_whole_and_returns_the_path(comparison: Any, tmp_path: Path) -> None:
    target = comparison.to_html(str(tmp_path / "r.html"))
    assert target == tmp_path / "r.html"
    assert target.read_text(encoding="utf-8").endswith("</html>\n")
    numbers = tmp_path / "r.metrics.json"
    assert sorted(tmp_path.iterdir()) == [target, numbers]
    assert json.loads(numbers.read_text("utf-8")) == json_values(comparison.to_dict())
    assert target.stat().st_size < 200_000


def test_write_report_is_retired_and_still_writes(
    comparison: Any, tmp_path: Path
) -> None:
    with pytest.warns(FutureWarning, match=r"evaluation\.to_html.*0\.7") as caught:
        page = write_report(comparison, tmp_path / "r.html")
    assert page.read_bytes() == comparison.to_html(tmp_path / "same.html").read_bytes()
    assert caught[0].filename == __file__


def test_paths_that_cannot_be_written(comparison: Any, tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="no folder"):
        comparison.to_html(tmp_path / "none" / "r.html")
    with pytest.raises(
        ValueError, match=r"`path` must end in .html or .htm.*got r.pdf.*print"
    ):
        comparison.to_html(tmp_path / "r.pdf")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.html").mkdir()
    with pytest.raises(DataFileError, match="it is not a file"):
        comparison.to_html(tmp_path / "x.html")


def test_methods_that_change_labels_share_one_line(
    comparison: Any, render: Render
) -> None:
    twice = replace(comparison["vecs"], name="again")
    page = render(replace(comparison, results=(*comparison.results, twice)))
    assert page.count("May change labels") == 1
    shares = [f"{comparison[name].score('accuracy'):.2%}" for name in ("vecs", "temps")]
    assert (
        "<strong>May change labels</strong>: share of right test labels: Vector scaling "
        f"(vecs) {shares[0]}; Vector scaling (again) {shares[0]}; all others {shares[1]}."
    ) in page


def test_methods_that_were_left_out_for_one_reason_share_a_line(
    comparison: Any, render: Render
) -> None:
    skipped = dict.fromkeys(("platt", "beta"), "it is for two classes")
    page = render(replace(comparison, skipped=skipped))
    assert "<strong>platt, beta</strong>: left out: it is for two classes." in page


def test_the_finding_stands_above_the_diagrams(comparison: Any, render: Render) -> None:
    page = render(comparison)
    finding = f'<p class="lead" id="finding">{comparison["hoki"].finding}</p>'
    assert page.index(finding) < page.index('id="pair"')


def test_of_two_classes_the_part_on_the_label_is_closed(render: Render) -> None:
    logits, labels = synthetic_logits(300, 2, seed=0)
    page = render(evaluate(None, logits, labels))
    details = Elements(page).named("details")
    assert details == [{"class": "label-part"}]
    label_part = page[page.index("<details") : page.index("</details>")]
    assert 'id="explore"' in label_part
    assert 'id="event"' not in label_part
