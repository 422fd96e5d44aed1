"""Calibrate a PyTorch network: confidence beside every label, abstention, one file
to ship.
"""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

from hokical import calibrate
from hokical.integrations.torch import CalibratedModel, collect_logits

torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(X, dtype=torch.float32) / 16, torch.tensor(y))
train, val, held_out, test = random_split(data, [300, 500, 500, len(y) - 1300])

network = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
for _ in range(40):
    for inputs, labels in DataLoader(train, batch_size=50, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()

model = calibrate(network, DataLoader(val, batch_size=256)).eval()
inputs, truth = (torch.stack(part) for part in zip(*test, strict=True))
with torch.no_grad():
    logits, labels, confidence = model(inputs)
raw = logits.softmax(dim=1).amax(dim=1)
print(f"accuracy {(labels == truth).float().mean():.1%}")
print(f"mean confidence: softmax {raw.mean():.1%}, calibrated {confidence.mean():.1%}")

cal = model.fitted.certify(
    *collect_logits(network, DataLoader(held_out, batch_size=256))
)
prediction = cal.predict_or_abstain(logits, risk=0.05)
wrong = prediction.labels[prediction.accepted] != truth[prediction.accepted]
print(
    f"accepted {prediction.accepted.float().mean():.0%}, of which wrong "
    f"{wrong.float().mean():.1%}"
)
print(prediction.guarantee)

model.save("model.safetensors")  # weights and calibrator; no code
again = CalibratedModel.load("model.safetensors", network).eval()
assert torch.equal(again(inputs).confidence, model(inputs).confidence)
