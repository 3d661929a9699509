"""The learning rate over the steps, and which kernels update the weights."""

from __future__ import annotations

import math

import torch


def warmup_cosine(optimizer: torch.optim.Optimizer, warmup: int, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """The learning rate rises over `warmup` steps, then falls along a cosine to a tenth at `steps`."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def optimizer_flags(implementation: str) -> dict[str, bool]:
    """The arguments of an optimizer for a value of --optimizer-impl."""
    return {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[implementation]
