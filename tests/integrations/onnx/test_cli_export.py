"""The command `hokical export`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

import hokical  # noqa: E402
from hokical.cli import app  # noqa: E402
from hokical.integrations.onnx import attach, check, export  # noqa: E402
from tests.conftest import grouped_examples  # noqa: E402
from tests.integrations.onnx.helpers import fitted  # noqa: E402
from tests.integrations.onnx.test_attach import network  # noqa: E402


def command(*words: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["export", *(str(word) for word in words)], prog_name="hokical"
    )


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "cal.json"
    fitted("hoki", 4).save(path)
    return path


@pytest.mark.slow
def test_export(saved, tmp_path):
    output = tmp_path / "cal.onnx"
    done = command(saved, "-o", output)
    assert done.exit_code == 0, done.stderr
    assert "logits float32 (batch, 4)" in done.stdout
    assert "labels int64 (batch), confidence float32 (batch)" in done.stdout
    assert "17, computed in float64" in done.stdout
    assert "0 labels differ, on 64 rows" in done.stdout
    shown = " ".join(done.stdout.split())  # a long path wraps the line
    assert f"({output.stat().st_size:,} bytes)" in shown
    assert output.read_bytes() == export(fitted("hoki", 4)).SerializeToString()


@pytest.mark.slow
def test_options_and_json(saved, tmp_path):
    output = tmp_path / "cal.onnx"
    options = ("--float32", "--opset", 18, "--proba", "--json")
    done = command(saved, "-o", output, *options)
    told = json.loads(done.stdout)
    assert told["opset"] == 18
    assert told["precision"] == "float32"
    assert told["outputs"][-1] == "probabilities float32 (batch, 4)"
    assert told["largest_difference"] < 1e-4
    unchecked = json.loads(command(saved, "-o", output, "--no-check", "--json").stdout)
    assert "check" not in unchecked
    assert unchecked["outputs"] == [
        "labels int64 (batch)",
        "confidence float32 (batch)",
    ]
    fitted("temps", 4).save(saved)
    plain = command(saved, "-o", output, "--no-proba", "--json")
    assert len(json.loads(plain.stdout)["outputs"]) == 2


def test_attach(saved, tmp_path):
    net, output = tmp_path / "net.onnx", tmp_path / "both.onnx"
    onnx.save(network(names=("a", "b")), net)
    done = command(saved, "-o", output, "--attach", net, "--scores", "b")
    assert done.exit_code == 0, done.stderr
    assert (
        "a float32 (n, 4), b float32 (n, 4), labels int64 (n), confidence"
        in done.stdout
    )
    assert "0 labels differ" in done.stdout
    assert onnx.load(output) == attach(net, fitted("hoki", 4), output="b")
    assert check(output, fitted("hoki", 4)).agrees


def test_a_network_that_cannot_be_run_is_written_all_the_same(saved, tmp_path):
    net, output = tmp_path / "net.onnx", tmp_path / "both.onnx"
    model = network()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "anything"
    onnx.save(model, net)
    done = command(saved, "-o", output, "--attach", net)
    assert done.exit_code == 0
    assert "not run: input 'x' has shape" in done.stdout
    assert output.exists()


def test_an_opset_too_new_for_the_runtime_is_written_all_the_same(
    saved, tmp_path, monkeypatch
):
    def refuse(*args, **options):
        raise RuntimeError("Too\nnew")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    output = tmp_path / "cal.onnx"
    done = command(saved, "-o", output, "--opset", onnx.defs.onnx_opset_version())
    assert done.exit_code == 0, done.stderr
    assert f"written to  {output}" in done.stdout
    assert (
        f"not run: onnxruntime {onnxruntime.__version__} cannot load it: Too new"
        in done.stdout
    )
    assert onnx.load(output) == export(
        fitted("hoki", 4), opset=onnx.defs.onnx_opset_version()
    )


def test_scores_before_a_softmax_called_logits(saved, tmp_path):
    net, output = tmp_path / "net.onnx", tmp_path / "both.onnx"
    model = network("Softmax")
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["logits" if name == "inner" else name for name in names]
    onnx.save(model, net)
    done = command(saved, "-o", output, "--attach", net, "--scores", "logits")
    assert done.exit_code == 0, done.stderr
    assert "0 labels differ, on 64 rows" in done.stdout
    assert done.stderr == ""


def test_a_softmax_called_logits_is_warned_of_in_options(saved, tmp_path):
    net, output = tmp_path / "net.onnx", tmp_path / "both.onnx"
    onnx.save(network("Softmax"), net)
    done = command(saved, "-o", output, "--attach", net)
    assert "0 labels differ" in done.stdout
    assert (done.exit_code, done.stderr) == (0, "")
    done = command(saved, "-o", output, "--attach", net, "--logits")
    assert done.exit_code == 0
    told = " ".join(done.stderr.split())
    assert (
        "Warning: 'scores' comes from a softmax, so it holds probabilities, and is "
        "taken for logits. Pass --probabilities, or the name of the logits as --scores."
    ) in told
    assert "the scores are probabilities, and are read as logits" in told
    onnx.save(network("Sigmoid"), net)
    done = command(saved, "-o", output, "--attach", net)
    assert done.exit_code == 2
    assert "--probabilities or --logits must be given: 'scores' comes" in done.stderr


def test_another_number_of_classes(saved, tmp_path):
    net = tmp_path / "net.onnx"
    onnx.save(network(n_classes=7), net)
    done = command(saved, "-o", tmp_path / "both.onnx", "--attach", net)
    assert done.exit_code == 2
    assert "it has 4, and 'scores' of shape (n, 7) has 7 in axis 1" in done.stderr


def test_errors(saved, tmp_path):
    output = tmp_path / "cal.onnx"
    net = tmp_path / "net.onnx"
    onnx.save(network(names=("a", "b")), net)
    cases = [
        (
            (saved, "-o", tmp_path / "cal.txt"),
            "expected an output name that ends in .onnx",
        ),
        (
            (tmp_path / "absent.json", "-o", output),
            "expected a calibrator file; cannot be read",
        ),
        ((saved, "-o", output, "--opset", 3), "`opset` must be from 13 to"),
        ((saved, "-o", output, "--scores", "a"), "--scores: only goes with --attach"),
        (
            (saved, "-o", output, "--probabilities"),
            "--probabilities: only goes with --attach",
        ),
        (
            (saved, "-o", output, "--attach", tmp_path / "no.onnx"),
            "there is no such file",
        ),
        ((saved, "-o", output, "--attach", saved), "`model` must be an ONNX file"),
        ((saved, "-o", output, "--attach", net), "--scores must say which output"),
        (
            (saved, "-o", output, "--attach", net, "--opset", 17),
            "the classifier has its own",
        ),
        ((saved, "-o", net, "--attach", net, "--scores", "a"), "is an input too"),
    ]
    for words, message in cases:
        done = command(*words)
        assert done.exit_code == 2, (words, done.stderr)
        assert message in done.stderr
        assert not output.exists()


@pytest.mark.slow
def test_the_method_is_that_of_the_fit(tmp_path):
    logits, labels, site = grouped_examples(2000, seed=0)
    hokical.auto(logits, labels, groups=site).save(tmp_path / "cal.json")
    done = command(
        tmp_path / "cal.json", "-o", tmp_path / "cal.onnx", "--no-check", "--json"
    )
    assert json.loads(done.stdout)["method"] == "auto"
