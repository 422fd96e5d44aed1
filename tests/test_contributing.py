"""The walk-throughs of CONTRIBUTING.md, followed: a method, a metric, a noise family, a
command.

The method is first one of another package, as it stands on the page; then all four are
put into a copy of the source, each block where its first line says.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hokical
from hokical.calibrators import Calibrator, catalog, make, method_names
from hokical.streams import fit as fit_stream
from hokical.streams import open_source
from tests.conftest import synthetic_logits
from tests.libraries import NAMES, get_library

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"


#: A first line such as `# src/hokical/metrics/__init__.py: in __all__`.
_WHERE = re.compile(r"# src/(\S+): (a new file|at the end|above|in)(?: (\w+))?\n")


def blocks() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return [
        str(code) for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    ]


def example() -> str:
    (code,) = [block for block in blocks() if not _WHERE.match(block)]
    return code


@pytest.fixture(scope="module", autouse=True)
def _hedge() -> Iterator[None]:
    """The method of the page, registered as its reader would have it."""
    module = ModuleType("hedge_example")
    sys.modules[module.__name__] = module
    exec(compile(example(), str(PAGE), "exec"), module.__dict__)
    yield
    catalog._registered.pop("hedge", None)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return synthetic_logits(500, 4, seed=6)


@pytest.fixture(scope="module")
def fitted(_hedge: None, data: tuple[np.ndarray, np.ndarray]) -> Calibrator:
    return make("hedge").fit(*data)


def test_it_is_listed_and_compared(data: tuple[np.ndarray, np.ndarray]) -> None:
    assert "hedge" in method_names()
    found = hokical.compare(data, data, ["uncalibrated", "hedge"])
    assert found["hedge"].score("log_loss") < found["uncalibrated"].score("log_loss")


def test_it_is_stored(
    fitted: Any, data: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    fitted.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    assert loaded.share_ == fitted.share_
    assert loaded.log_loss_ == fitted.log_loss_
    np.testing.assert_array_equal(
        loaded.predict_proba(data[0]), fitted.predict_proba(data[0])
    )
    assert loaded.share_ == fitted.share_


@pytest.mark.parametrize("library", NAMES)
def test_it_answers_every_library(
    fitted: Any, data: tuple[np.ndarray, np.ndarray], library: str
) -> None:
    kind = get_library(library)
    with kind.scope():
        found = fitted.predict_proba(kind.make(data[0]))
        assert kind.owns(found)
        got = kind.read(found)
    np.testing.assert_allclose(got, fitted.predict_proba(data[0]), rtol=0.0, atol=1e-12)


def test_it_streams(fitted: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    chunks = [(data[0][i : i + 100], data[1][i : i + 100]) for i in range(0, 500, 100)]
    streamed = fit_stream(make("hedge"), open_source(chunks))
    assert streamed.share_ == fitted.share_


def test_it_is_a_torch_module(fitted: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    labels, confidence = as_module(fitted)(torch.from_numpy(data[0]))
    np.testing.assert_array_equal(labels.numpy(), fitted.predict(data[0]))
    np.testing.assert_allclose(
        confidence.numpy(), fitted.predict_confidence(data[0]), rtol=0.0, atol=1e-12
    )


def test_it_is_an_onnx_graph(fitted: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("ndonnx")
    runtime = pytest.importorskip("onnxruntime")
    from hokical.integrations.onnx import export

    model = export(fitted, input_dtype="float64")
    session = runtime.InferenceSession(model.SerializeToString())
    _, confidence, _ = session.run(None, {"logits": data[0]})
    np.testing.assert_allclose(
        confidence, fitted.predict_confidence(data[0]), rtol=0.0, atol=1e-7
    )


def test_names_are_taken_once() -> None:
    kind = catalog.load_class("hedge")
    assert catalog.register(kind) is kind
    with pytest.raises(ValueError, match="is taken"):
        catalog.register(type("Other", (kind,), {}))


@pytest.mark.slow
def test_another_package_brings_it_to_the_command_line_and_to_load(
    fitted: Any, data: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """A process that knows the method by its entry point alone."""
    (tmp_path / "hedge_package.py").write_text(example())
    about = tmp_path / "hedge_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: hedge-package\nVersion: 1.0\n"
    )
    (about / "entry_points.txt").write_text(
        f"[{catalog.GROUP}]\nhedge = hedge_package:Hedge\n"
    )
    np.savez(tmp_path / "val.npz", logits=data[0], labels=data[1])
    program = (
        "import sys, hokical; from hokical.cli import main; sys.argv[0] = 'hokical'\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "print('share', hokical.load('cal.json').share_)"
    )
    words = ["fit", "val.npz", "--method", "hedge", "-o", "cal.json"]
    run = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout.split("share ")[1]) == pytest.approx(
        fitted.share_, rel=1e-12
    )


def class_source(name: str) -> str:
    """A class of the page's method, with its decorators but for `@register`."""
    found = next(
        node
        for node in ast.parse(example()).body
        if getattr(node, "name", None) == name
    )
    assert isinstance(found, ast.ClassDef)
    kept = [each for each in found.decorator_list if ast.unparse(each) != "register"]
    found.decorator_list = kept
    return ast.unparse(found)


def put(folder: Path, block: str) -> None:
    """Put a block of the page into the copy of the source, where its first line
    says.
    """
    where = _WHERE.match(block)
    assert where is not None
    path, place, anchor = where.groups()
    code, file = block[where.end() :], folder / path
    if place == "a new file":
        assert not file.exists(), block
        file.write_text(code, encoding="utf-8")
        return
    text = file.read_text(encoding="utf-8")
    if place == "above" and anchor[0].isupper():  # a class that moves here
        text += f"\n{code}\n\n{class_source(anchor)}\n"
    elif place == "above":
        text = re.sub(
            rf"^(?={anchor}\b)", lambda _: code + "\n", text, count=1, flags=re.M
        )
    elif place == "in":
        opened = re.search(rf"^(?:for )?{anchor}\b[^\n]*[\[({{]\n", text, re.M)
        assert opened is not None, f"{path} has no {anchor}"
        text = text[: opened.end()] + code + text[opened.end() :]
    else:
        text += f"\n{code}"
    assert text != file.read_text(encoding="utf-8"), block
    file.write_text(text, encoding="utf-8")


FOLLOWED = """
import sys
import numpy as np
import hokical
from hokical.cli import main

words = sys.argv[1:]
sys.argv[:] = ["hokical", *words]
if words:
    main()
assert hokical.__file__.startswith(sys.path[1]), hokical.__file__
cal = hokical.load("cal.json")
assert type(cal).__name__ == "Hedge" and 0 <= cal.share_ <= 0.5
assert "hedge" in hokical.calibrators.method_names()
assert round(hokical.metrics.spherical([0.9, 0.6], [True, False]), 6) == 0.225708
assert round(hokical.metrics.spherical([[3 / 7, 4 / 7]], [0]), 6) == 0.4
proba = [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3]] * 10
labels = [0, 2] * 10
cluster = [k // 2 for k in range(20)]
found = hokical.metrics.summary(proba, labels, cluster=cluster)["spherical"]
assert abs(found.value - hokical.metrics.spherical(proba, labels)) < 1e-12
assert found.low <= found.value <= found.high
logits, labels = np.log(proba), np.array(labels)
compared = hokical.compare((logits, labels), (logits, labels), ["uncalibrated", "temps"])
(difference,) = compared.differences("spherical")
scores = [compared[name].score("spherical") for name in ("uncalibrated", "temps")]
assert abs(difference.value - (scores[0] - scores[1])) < 1e-12
print(hokical.metrics.summary([0.9, 0.6, 0.7, 0.8], [True, False, True, True])["spherical"].value)
"""


TYPED = """
import sys
from hokical.cli import main

words = "fit val.npz --method hoki --set noise=logistic:2 -o typed.json"
sys.argv[:] = ["hokical", *words.split()]
main()
"""

NOISE = """
import doctest
import sys
import warnings
import numpy as np
import hokical
from hokical import Hoki, label_distribution, label_stability, select_noise
from hokical.rules import as_logits
from hokical.stability import Logistic, logistic
from hokical.stability.sampled import Draws

warnings.simplefilter("error")
assert hokical.__file__.startswith(sys.path[1]), hokical.__file__
data = np.load("val.npz")
logits, labels = data["logits"], data["labels"]
noise = Logistic(1.5)
assert doctest.testmod(logistic) == (0, 2)

# Exact stability is what the draws estimate, and the label's own probability.
gamma = label_stability(logits, noise)
sampled = label_stability(logits, noise, draws=20_000, random_state=0)
assert np.abs(gamma - sampled).max() < 5.0 * 0.5 / np.sqrt(20_000)
proba = label_distribution(logits, noise)
rows = np.arange(len(logits))
np.testing.assert_allclose(proba[rows, logits.argmax(axis=1)], gamma, atol=1e-12)
draws = Draws(noise, 0, 5000, 4).values
assert abs(draws.std() / (1.5 * Logistic.unit_deviation) - 1.0) < 0.02
np.testing.assert_array_equal(label_stability(logits[:7], noise), gamma[:7])
order = np.argsort(-logits, axis=1)[:, :2]
top = as_logits(
    hokical.TopK(np.take_along_axis(logits, order, axis=1), order, n_classes=4)
)
np.testing.assert_allclose(noise.stability(top), noise.stability(top.fill()), atol=1e-9)

# It is searched, by name; saved and loaded, with draws and without; and typed.
chosen = select_noise(logits, labels, families=["logistic"]).noise
assert type(chosen) is Logistic
assert "logistic" not in {
    trial.noise.family for trial in select_noise(logits, labels).trials
}
for options in ({}, {"draws": 200, "random_state": 3}):
    cal = Hoki(noise=chosen, **options).fit(logits, labels)
    cal.save("noise.json")
    loaded = hokical.load("noise.json")
    assert loaded.noise_ == chosen
    expected = cal.predict_proba(logits)
    np.testing.assert_array_equal(loaded.predict_proba(logits), expected)
assert hokical.load("typed.json").noise_ == Logistic(2.0)

# Tensors give the same, as on a GPU: there is no kernel to look for.
try:
    import torch
except ImportError:
    pass
else:
    values = torch.from_numpy(logits)
    np.testing.assert_allclose(label_stability(values, noise), gamma, atol=1e-12)
    smooth = values.clone().requires_grad_()
    label_stability(smooth, noise).sum().backward()
    assert smooth.grad.isfinite().all() and smooth.grad.abs().max() > 1e-3
"""


Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(
    data: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Run a program with words of the command line, in a copy of the source in which
    all walk-throughs have been followed.
    """
    home = tmp_path_factory.mktemp("followed")
    folder = home / "src"
    shutil.copytree(
        PAGE.parent / "src" / "hokical", folder / "hokical"
    )  # with what is compiled
    placed = [block for block in blocks() if _WHERE.match(block)]
    assert len(placed) == 16
    for block in placed:
        put(folder, block)
    np.savez(home / "val.npz", logits=data[0], labels=data[1])
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: str, code: str = FOLLOWED) -> str:
        program = f"import sys; sys.path.insert(1, {str(folder)!r})\n{code}"
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_the_walk_throughs_can_be_followed(run: Run) -> None:
    run("fit", "val.npz", "--method", "hedge", "-o", "cal.json")
    assert float(run()) == pytest.approx(0.19, abs=0.15)
    assert "Mean confidence" in run("sharpness", "val.npz")
    assert "spherical" in run("evaluate", "cal.json", "val.npz", "--json")
    run("evaluate", "cal.json", "val.npz", "--report", "report.html", "--json")
    read = "from pathlib import Path; print(Path('report.html').read_text('utf-8'))"
    assert "spherical score" in run(code=read)


@pytest.mark.slow
def test_the_noise_family_of_the_page_works_everywhere(run: Run) -> None:
    run(code=TYPED)
    run(code=NOISE)
