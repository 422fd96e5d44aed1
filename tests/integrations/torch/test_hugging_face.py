"""Networks of transformers: pipelines, files, Trainer, tokens, choices. Nothing is
downloaded.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from tests.integrations.torch.examples import NAMES, fitted

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow  # importing these networks takes seconds

from hokical.integrations.torch import CalibratedModel, calibrate  # noqa: E402

CLASSES = ["joy", "anger", "fear", "awe", "none"]
WORDS = [f"w{k}" for k in range(30)]
TEXTS = ["w1 w2 w3", "w4", "w5 w6 w29 w8 w9", "unknown w7"]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: k for k, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    )


def network(
    kind: str = "SequenceClassification",
    labels: Sequence[str] = CLASSES,
    **options: Any,
) -> Any:
    """A tiny one whose logits differ between inputs."""
    config = transformers.BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        id2label=dict(enumerate(labels)),
        label2id={name: k for k, name in enumerate(labels)},
        initializer_range=0.5,
        **options,
    )
    torch.manual_seed(0)
    return getattr(transformers, f"BertFor{kind}")(config).eval()


def scores(pipe: Any, texts: list[str]) -> np.ndarray:
    """Probabilities (texts, classes) that a pipeline gives, one text at a time."""
    found = [
        {one["label"]: one["score"] for one in pipe(text, top_k=None)} for text in texts
    ]
    return np.array([[row[name] for name in CLASSES] for row in found])


def raw_logits(model: Any, tokenizer: Any, texts: list[str]) -> np.ndarray:
    """Where the model is: a pipeline moves it to a GPU, if there is one."""
    with torch.no_grad():
        given = [
            tokenizer(text, return_tensors="pt").to(model.device) for text in texts
        ]
        rows = [model(**inputs).logits for inputs in given]
    return torch.cat(rows).double().cpu().numpy()


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_a_pipeline_are_the_calibrated_probabilities(
    name: str, tokenizer: Any
) -> None:
    model = network()
    calibrated = CalibratedModel(model, fitted(name))
    pipe = transformers.pipeline(
        "text-classification", model=calibrated.for_pipeline(), tokenizer=tokenizer
    )
    logits = raw_logits(model, tokenizer, TEXTS)
    expected = fitted(name).predict_proba(logits.astype(np.float32))
    np.testing.assert_allclose(scores(pipe, TEXTS), expected, atol=1e-6)
    best = [one["label"] for one in pipe(TEXTS)]
    assert best == [CLASSES[k] for k in expected.argmax(axis=1)]


def test_network_and_calibrated_model_stay_as_they_are(tokenizer: Any) -> None:
    model = network()
    calibrated = CalibratedModel(model, fitted("temps"))
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    before, answer = model(**inputs).logits, calibrated(**inputs)
    twin = calibrated.for_pipeline()
    assert type(twin) is type(model)
    assert next(twin.parameters()) is next(model.parameters())
    assert torch.equal(model(**inputs).logits, before)
    assert torch.equal(calibrated(**inputs).confidence, answer.confidence)
    assert torch.equal(
        twin(**inputs).logits, calibrated.for_pipeline()(**inputs).logits
    )


def test_outputs_keep_their_class_loss_and_states(tokenizer: Any) -> None:
    model = network()
    calibrated = CalibratedModel(model, fitted("temps"))
    inputs = dict(tokenizer(TEXTS, return_tensors="pt", padding=True))
    given = {
        **inputs,
        "labels": torch.tensor([0, 1, 2, 3]),
        "output_hidden_states": True,
    }
    plain, found = model(**given), calibrated.for_pipeline()(**given)
    assert type(found) is type(plain)
    assert torch.equal(found.loss, plain.loss)
    assert torch.equal(found.hidden_states[-1], plain.hidden_states[-1])
    torch.testing.assert_close(found.logits.exp(), calibrated.predict_proba(**inputs))
    with pytest.raises(
        TypeError, match=r"mapping with `logits`.*`return_dict=True`; got tuple"
    ):
        calibrated.for_pipeline()(**inputs, return_dict=False)


def test_copies_and_pickles_of_a_network_for_pipelines(tokenizer: Any) -> None:
    twin = CalibratedModel(network(), fitted("temps")).for_pipeline()
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    for other in (copy.deepcopy(twin), pickle.loads(pickle.dumps(twin))):
        assert torch.equal(other(**inputs).logits, twin(**inputs).logits)


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_problems_without_a_softmax_are_refused(problem: str) -> None:
    model = CalibratedModel(network(problem_type=problem), fitted("temps"))
    with pytest.raises(ValueError, match=rf"got '{problem}'.*MultilabelCalibrator"):
        model.for_pipeline()


@pytest.mark.parametrize("method", ["hoki gaussian", "temps"])
def test_pipeline_and_model_predict_the_same_label(method: str, tokenizer: Any) -> None:
    model = CalibratedModel(network(), fitted(method))
    texts = [f"w{k} w{(3 * k) % 30} w{(7 * k) % 30}" for k in range(30)]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    found = model.for_pipeline()(**inputs).logits.argmax(dim=1)
    assert torch.equal(found, model(**inputs).labels)


def test_several_labels_in_a_pipeline(tokenizer: Any) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(500, len(CLASSES)))
    cal = hokical.MultilabelCalibrator().fit(
        3 * scores, rng.logistic(size=scores.shape) < scores
    )
    model = CalibratedModel(network(problem_type="multi_label_classification"), cal)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    found = model.for_pipeline()(**inputs).logits.sigmoid()
    torch.testing.assert_close(found, model(**inputs).confidence)


def test_config_and_save_pretrained(tokenizer: Any, tmp_path: Path) -> None:
    model = CalibratedModel(network(), fitted("temps"))
    assert model.config is model.model.config
    model.save_pretrained(tmp_path)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    kind = transformers.AutoModelForSequenceClassification
    by_hand = CalibratedModel(
        kind.from_pretrained(tmp_path).eval(), hokical.load(tmp_path / "hokical.json")
    )
    for loaded in (
        by_hand,
        CalibratedModel.from_pretrained(tmp_path),
        CalibratedModel.from_pretrained(str(tmp_path), kind),
        CalibratedModel.from_pretrained(tmp_path, kind.from_pretrained(tmp_path)),
    ):
        assert type(loaded.model) is type(model.model)
        assert torch.equal(loaded(**inputs).confidence, model(**inputs).confidence)
    with pytest.raises(TypeError, match=r"`save_pretrained`.*got Linear"):
        CalibratedModel(torch.nn.Linear(2, 5), fitted("temps")).save_pretrained(
            tmp_path
        )
    with pytest.raises(TypeError, match=r"`push_to_hub`.*got Linear"):
        CalibratedModel(torch.nn.Linear(2, 5), fitted("temps")).push_to_hub("me/model")


def test_folders_without_a_calibrator_are_refused(tmp_path: Path) -> None:
    network().save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no hokical\.json"):
        CalibratedModel.from_pretrained(tmp_path)


def test_a_pipeline_is_not_saved_without_its_calibrator(
    tokenizer: Any, tmp_path: Path
) -> None:
    calibrated = CalibratedModel(network(), fitted("hoki gaussian"))
    pipe = transformers.pipeline(
        "text-classification", model=calibrated.for_pipeline(), tokenizer=tokenizer
    )
    with pytest.raises(ValueError, match=r"without its calibrator.*from_pretrained"):
        pipe.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"without its calibrator.*push_to_hub"):
        pipe.model.push_to_hub("me/model")
    assert not [*tmp_path.rglob("*.safetensors")]
    calibrated.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = transformers.pipeline(
        "text-classification",
        model=CalibratedModel.from_pretrained(tmp_path).for_pipeline(),
        tokenizer=transformers.AutoTokenizer.from_pretrained(tmp_path),
    )
    np.testing.assert_allclose(scores(again, TEXTS), scores(pipe, TEXTS), rtol=1e-6)


def test_a_hub_gets_the_calibrator(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be uploaded, with a folder in the place of the hub."""
    calibrated, sent = CalibratedModel(network(), fitted("temps")), []

    def push_to_hub(
        self: Any, repo_id: str, **options: Any
    ) -> str:  # as transformers does
        self.save_pretrained(tmp_path / repo_id, max_shard_size="50GB")
        sent.append((repo_id, options))
        return f"https://hub/{repo_id}"

    monkeypatch.setattr(type(calibrated.model), "push_to_hub", push_to_hub)
    assert calibrated.push_to_hub("me/model", private=True) == "https://hub/me/model"
    assert sent == [("me/model", {"private": True})]
    again = CalibratedModel.from_pretrained(tmp_path / "me/model")
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    assert torch.equal(again(**inputs).confidence, calibrated(**inputs).confidence)
    assert "save_pretrained" not in vars(calibrated.model)


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_how_a_calibrator_is_used_is_saved_too(tmp_path: Path, outputs: Any) -> None:
    model = CalibratedModel(network(), fitted("temps"), outputs=outputs, class_axis=1)
    model.save_pretrained(tmp_path)
    again = CalibratedModel.from_pretrained(tmp_path)
    assert (again.outputs, again.class_axis) == (outputs, 1)
    assert again.fitted.metadata_ == model.fitted.metadata_


def test_one_output_in_a_pipeline(tokenizer: Any) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=500)
    cal = hokical.make("temps").fit(
        hokical.from_binary_scores(3.0 * odds),
        (rng.logistic(size=500) < odds).astype(int),
    )
    model = CalibratedModel(network(num_labels=1, labels=["yes"]), cal)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    found = model.for_pipeline()(**inputs).logits
    assert found.shape == (len(TEXTS), 1)
    torch.testing.assert_close(found.sigmoid(), model.predict_proba(**inputs)[:, 1:])


def test_outputs_of_trainer_are_taken_as_they_are(
    tokenizer: Any, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    model, rng = network(), np.random.default_rng(0)
    rows = [
        {**tokenizer(" ".join(rng.choice(WORDS, size=size))), "label": int(label)}
        for size, label in zip(
            rng.integers(1, 8, 60), rng.integers(5, size=60), strict=True
        )
    ]
    collate = transformers.DataCollatorWithPadding(tokenizer)

    def compute_metrics(prediction: Any) -> dict[str, float]:
        proba = hokical.make("uncalibrated").fit(
            prediction.predictions, prediction.label_ids
        )
        found = proba.predict_proba(prediction.predictions)
        return {"loss_again": hokical.metrics.log_loss(found, prediction.label_ids)}

    options = transformers.TrainingArguments(
        str(tmp_path), report_to="none", disable_tqdm=True, use_cpu=True
    )
    trainer = transformers.Trainer(
        model, options, data_collator=collate, compute_metrics=compute_metrics
    )
    output = trainer.predict(rows)
    assert output.metrics["test_loss_again"] == pytest.approx(
        output.metrics["test_loss"], rel=1e-5
    )
    cal = hokical.make("temps").fit(output.predictions, output.label_ids)
    loader = torch.utils.data.DataLoader(rows, batch_size=8, collate_fn=collate)
    assert calibrate(model, loader, "temps").fitted.rule_.temperature == pytest.approx(
        cal.rule_.temperature, rel=1e-4
    )


def test_tokens_through_a_pipeline(tokenizer: Any) -> None:
    model = network("TokenClassification")
    calibrated = CalibratedModel(model, fitted("temps"))
    pipe = transformers.pipeline(
        "token-classification",
        model=calibrated.for_pipeline(),
        tokenizer=tokenizer,
        ignore_labels=[],
    )
    text = "w1 w2 w3 w4"
    logits = raw_logits(model, tokenizer, [text])[0]
    expected = fitted("temps").predict_confidence(logits)
    np.testing.assert_allclose(
        [one["score"] for one in pipe(text)], expected, atol=1e-6
    )


def test_multiple_choice_needs_nothing(tokenizer: Any) -> None:
    model, rng = network("MultipleChoice"), np.random.default_rng(0)
    inputs = torch.tensor(rng.integers(2, 32, (64, 4, 6)))
    labels = torch.tensor(rng.integers(4, size=64))
    rows = [
        {"input_ids": row, "labels": label}
        for row, label in zip(inputs, labels, strict=True)
    ]
    loader = torch.utils.data.DataLoader(rows, batch_size=16)
    calibrated = calibrate(model, loader, "vecs")
    with torch.no_grad():
        output = calibrated(input_ids=inputs)
    assert output.logits.shape == (64, 4)
    expected = calibrated.fitted.predict_confidence(output.logits)
    torch.testing.assert_close(output.confidence, expected.to(output.confidence))
