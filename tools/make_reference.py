"""Make the reference of the documentation: one page for each public name, with an
example.

    python tools/make_reference.py  # writes docs/api/; `make docs` does it

The names are those of `tests/public_names.txt`, and the docstrings are read without
importing anything, so that no library need be installed and no name is left out: one
that is not found, has no docstring or no example ends the build. `docs/api/index.md`
lists all by package. An object that is public in two packages has one page, under the
shorter path.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "api"
#: Packages in the order of the overview, with what they are for.
PACKAGES = {
    "hokical": "most programs need these alone",
    "hokical.calibrators": "methods, and what a method of your own needs",
    "hokical.guarantees": "selective prediction, conformal sets, risk control, label shift",
    "hokical.metrics": "calibration errors, proper scores, selective prediction, risk models",
    "hokical.report": "evaluations and reports",
    "hokical.plots": "drawings, with matplotlib",
    "hokical.monitoring": "drift and coverage in production",
    "hokical.io": "files, log-probabilities and answers of language models",
    "hokical.streams": "data larger than memory",
    "hokical.dense": "segmentation and tokens",
    "hokical.stability": "label stability and noise",
    "hokical.rules": "fitted rules",
    "hokical.integrations.sklearn": "scikit-learn",
    "hokical.integrations.torch": "PyTorch and transformers",
    "hokical.integrations.onnx": "ONNX",
    "hokical.integrations.arrow": "Spark, Ray, Polars, DuckDB",
}
#: What makes an object of a class whose own docstring has no example.
MADE_BY = {
    "hokical.CalibratorFileError": "hokical.load",
    "hokical.calibrators.Examples": "hokical.calibrators.register",
    "hokical.calibrators.Fit": "hokical.calibrators.register",
    "hokical.calibrators.MethodInfo": "hokical.calibrators.register",
    "hokical.guarantees.DensityRatios": "hokical.guarantees.density_ratios",
    "hokical.guarantees.Detections": "hokical.Calibrator.detect",
    "hokical.guarantees.PredictionSets": "hokical.Calibrator.predict_set",
    "hokical.guarantees.RiskControl": "hokical.Calibrator.control_risk",
    "hokical.guarantees.SelectivePrediction": "hokical.Calibrator.predict_or_abstain",
    "hokical.guarantees.ShiftEstimate": "hokical.Calibrator.estimate_shift",
    "hokical.guarantees.LabelSets": "hokical.MultilabelCalibrator",
    "hokical.guarantees.ValidationPlan": "hokical.guarantees.plan_validation",
    "hokical.integrations.onnx.Check": "hokical.integrations.onnx.check",
    "hokical.integrations.onnx.NotRunnable": "hokical.integrations.onnx.check",
    "hokical.metrics.BinarySummary": "hokical.metrics.binary_summary",
    "hokical.metrics.CalibrationCurve": "hokical.metrics.smooth_calibration_curve",
    "hokical.metrics.Estimate": "hokical.metrics.summary",
    "hokical.metrics.GroupRow": "hokical.metrics.group_table",
    "hokical.metrics.GroupTable": "hokical.metrics.group_table",
    "hokical.metrics.METRICS": "hokical.metrics.summary",
    "hokical.metrics.Metric": "hokical.metrics.summary",
    "hokical.metrics.PredictionPowered": "hokical.metrics.prediction_powered_accuracy",
    "hokical.metrics.RiskBands": "hokical.metrics.risk_bands",
    "hokical.metrics.Summary": "hokical.metrics.summary",
    "hokical.monitoring.Status": "hokical.CalibrationMonitor",
    "hokical.report.Evaluation": "hokical.evaluate",
    "hokical.io.Rows": "hokical.io.read_examples",
    "hokical.io.STATED_WORDS": "hokical.io.read_stated",
    "hokical.io.DataFileError": "hokical.io.read_examples",
    "hokical.rules.Logits": "hokical.rules.as_logits",
    "hokical.rules.Rule": "hokical.calibrators.register",
    "hokical.stability.Noise": "hokical.label_stability",
    "hokical.stability.StabilityTable": "hokical.label_stability",
}
#: Inherited names that users call; their classes have no page of their own.
INHERITED = (
    "save",
    "load",
    "lock",
    "is_fitted",
    "n_classes_",
    "class_names",
    "members_",
    "needed_members_",
    "group_codes",
    "without_groups",
    "library_version",
    "get_params",
    "set_params",
)
INTRODUCTION = """# Reference

Every public name, by package. Which are stable: [production](../production.md#compatibility).
"""
_DOCTEST = re.compile(r"^>>> .*?(?=\n\n(?!>>> )|\n```|\Z)", re.DOTALL | re.MULTILINE)


def main() -> list[str]:
    """Write the pages; return the names that have one."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    made = pages(public_names())
    for name, text in made.items():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {len(made)} pages")
    return [name for name in made if name != "index"]


def public_names() -> list[str]:
    """`hokical.metrics.ece` and so on, as `tests/public_names.txt` lists them."""
    listed = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").split()
    unknown = {name.partition(":")[0] for name in listed} - set(PACKAGES)
    if unknown:
        sys.exit(
            f"tools/make_reference.py must say what {sorted(unknown)} are for: "
            "PACKAGES."
        )
    return [name.replace(":", ".") for name in sorted(listed, key=str.lower)]


def pages(names: list[str]) -> dict[str, str]:
    """Text of every page, by its name."""
    root = griffe.load(
        "hokical", search_paths=[str(ROOT / "src")], resolve_aliases=True
    )
    found = {name: look_up(root, name) for name in names}
    homes: dict[str, str] = {}  # the public path of each object, by where it is defined
    for name in sorted(names, key=lambda name: (name.count("."), name)):
        homes.setdefault(found[name].canonical_path, name)
    wanting = [name for name in homes.values() if not example_of(name, found)]
    if wanting:
        sys.exit(f"no example in the docstrings of {wanting}, nor in those of MADE_BY.")
    made = {name: page(name, found) for name in homes.values()}
    return {"index": overview(found, homes)} | made


def look_up(root: griffe.Object, name: str) -> griffe.Object:
    """The object of a public name, wherever it is defined."""
    try:
        one = root[name.removeprefix("hokical.")]
        target = one.final_target if one.is_alias else one
    except (KeyError, griffe.AliasResolutionError) as error:
        sys.exit(f"the public name {name} is not found in src/: {error!r}.")
    if target.docstring is None:
        sys.exit(f"the public name {name} has no docstring.")
    return target


def page(name: str, found: dict[str, griffe.Object]) -> str:
    """The docstring of a name under its public path, and an example where it has
    none.
    """
    lines = [f"::: {name}", "    options:", "      heading_level: 1"]
    inherited = inherited_names(found[name])
    if inherited:  # after its own members
        own = [key for key in found[name].members if not key.startswith("_")]
        lines.append(f"      members: [{', '.join([*own, *inherited])}]")
        lines.append(f"      inherited_members: [{', '.join(inherited)}]")
    parts = ["\n".join(lines) + "\n"]
    if not own_example(found[name]):
        maker = MADE_BY[name]
        page = maker.removeprefix("hokical.").split(".")[0] == "Calibrator"
        link = "hokical.Calibrator.md" if page else f"{maker}.md"
        parts.append(f"\n## Example\nFrom [`{maker}`]({link}):\n\n")
        parts.append(f"```pycon\n{example_of(name, found)}\n```\n")
    return "".join(parts)


def inherited_names(one: griffe.Object) -> list[str]:
    """Names of a class that come from classes without a page.

    What all calibrators share is shown once, at `Calibrator`.
    """
    if not one.is_class or "Calibrator" in {base.name for base in one.mro()}:
        return []
    return [name for name in INHERITED if name in one.inherited_members]


def example_of(name: str, found: dict[str, griffe.Object]) -> str:
    """Its own doctest, or that of what makes it."""
    own = own_example(found[name])
    if own or name not in MADE_BY:
        return own
    maker, _, method = MADE_BY[name].rpartition(".")
    whole = maker in found  # `hokical.Calibrator.detect`: a method
    return own_example(found[maker].members[method] if whole else found[MADE_BY[name]])


def own_example(one: griffe.Object) -> str:
    """The first doctest of an object or, for a class, of one of its methods."""
    methods = one.members.values() if one.is_class else ()
    for each in (one, *methods):
        text = "" if each.is_alias or each.docstring is None else each.docstring.value
        shown = _DOCTEST.search(text)
        if shown:
            return shown[0]
    return ""


def overview(found: dict[str, griffe.Object], homes: dict[str, str]) -> str:
    """The page that lists every name."""
    parts = [INTRODUCTION]
    for package, purpose in PACKAGES.items():
        parts.append(
            f"\n## `{package}`: {purpose}\n\n| name | what it is |\n| --- | --- |\n"
        )
        for name, one in found.items():
            if name.rpartition(".")[0] == package:
                home = homes[one.canonical_path]
                link = f"[`{name.rpartition('.')[2]}`]({home}.md)"
                parts.append(f"| {link} | {first_line(one)} |\n")
    return "".join(parts)


def first_line(one: griffe.Object) -> str:
    """The summary of a docstring, on one line of a table."""
    text = one.docstring.value.split("\n\n")[0] if one.docstring else ""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
