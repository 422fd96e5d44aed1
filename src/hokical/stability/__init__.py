"""Label stability: how likely is a label to survive noise on the logits?"""

from hokical.stability.api import label_distribution, label_stability, stability_bounds

__all__ = ["label_distribution", "label_stability", "stability_bounds"]
