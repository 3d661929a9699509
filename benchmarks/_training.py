"""Training steps that are timed on a device and on the CPU: a small GPT, a small ResNet, an optimizer's step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[[], object]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.before_attention(x)).split(width, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, tokens: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.token(ids) + self.position(positions))))


class Residual(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels_in == channels
            else nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def resnet(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> Step:
    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def gpt_step(device: torch.device | str) -> Step:
    """2 layers, 256 wide, 8 sequences of 128 tokens, foreach AdamW."""
    torch.manual_seed(0)
    model = GPT(vocabulary=256, tokens=128, width=256, layers=2, heads=4).to(device)
    ids = torch.randint(256, (8, 129)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    return training_step(model, optimizer, ids[:, :-1], ids[:, 1:])


def resnet_step(device: torch.device | str) -> Step:
    """Three residual blocks of 16, 32 and 64 channels, 16 images of 32 x 32, SGD with momentum."""
    torch.manual_seed(0)
    model = resnet(classes=10).to(device)
    images, labels = torch.randn(16, 3, 32, 32).to(device), torch.randint(10, (16,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return training_step(model, optimizer, images, labels)


def adamw_step(device: torch.device | str) -> Step:
    """Foreach AdamW over the parameters of the GPT."""
    torch.manual_seed(0)
    model = GPT(vocabulary=256, tokens=128, width=256, layers=2, heads=4).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape).to(device)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True).step


def peak_on_device(make: Callable[[torch.device | str], Step], device: torch.device) -> int:
    """The most bytes that are allocated on the device during the second step, the optimizer's state included."""
    step = make(device)
    step()
    torch.accelerator.synchronize()
    torch.accelerator.reset_peak_memory_stats(device)
    step()
    torch.accelerator.synchronize()
    return torch.accelerator.max_memory_allocated(device)


def peak_on_cpu(make: Callable[[torch.device | str], Step]) -> int:
    """The same on the CPU, as the sum of the profiler's memory events since before the model was made."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step = make("cpu")
        step()
        with torch.profiler.record_function("second step"):
            step()
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    start = next(event.start_ns() for event in events if event.name() == "second step")
    live = most = 0
    for event in events:
        if event.name() != "[memory]":
            continue
        live += event.nbytes()
        if event.start_ns() >= start:
            most = max(most, live)
    return most
