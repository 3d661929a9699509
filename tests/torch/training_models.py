"""Small models that give their own loss, with data for them: what the tests of training run."""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, 64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), y)


class ConvNet(nn.Module):
    """A residual block between a stem and a head."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
        )
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Sequential(
            nn.Conv2d(8, 16, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(16, 10)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.pool(F.relu(x + self.block(x)))
        return F.cross_entropy(self.head(x), y)


class Lstm(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, dropout=dropout, batch_first=True)
        self.head = nn.Linear(24, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens[:, :-1]))
        return F.cross_entropy(self.head(states).flatten(0, 1), tokens[:, 1:].flatten())


class GptLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_qkv, self.to_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.to_qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        seen = self.to_out(seen.transpose(1, 2).reshape(batch, length, width))
        x = x + F.dropout(seen, self.dropout, self.training)
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    """With attention, layer norm, embeddings, and one matrix for the embedding and the head."""

    def __init__(
        self, dropout: float, vocabulary: int = 48, length: int = 16, width: int = 32, layers: int = 2
    ) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(GptLayer(width, 4, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        for table in (self.embedding, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        places = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.dropout(self.embedding(inputs) + self.positions(places))
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(8, 3, 12, 12, generator=generator), torch.randint(10, (8,), generator=generator)


def features(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(16, 20, generator=generator), torch.randint(10, (16,), generator=generator)


def tokens(generator: torch.Generator) -> tuple[Tensor]:
    return (torch.randint(32, (4, 13), generator=generator),)


@dataclasses.dataclass(frozen=True)
class Task:
    make: Callable[[float], nn.Module]
    draw: Callable[[torch.Generator], tuple[Tensor, ...]]

    def model(self, dropout: float = 0.0) -> nn.Module:
        """The same weights at each call, on the CPU."""
        torch.manual_seed(11)
        return self.make(dropout)

    def batches(self, count: int) -> list[tuple[Tensor, ...]]:
        """Three in turn, so that there is something to learn; the same at each call, on the CPU, pinned."""
        generator = torch.Generator().manual_seed(12)
        three = [tuple(t.pin_memory() for t in self.draw(generator)) for _ in range(3)]
        return [three[i % 3] for i in range(count)]


TASKS = {
    "mlp": Task(Mlp, features),
    "conv": Task(ConvNet, images),
    "lstm": Task(Lstm, tokens),
    "gpt": Task(Gpt, tokens),
}

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters, **flags: torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=1e-4, **flags),
    "adam": lambda parameters, **flags: torch.optim.Adam(parameters, 3e-3, **flags),
    "adamw": lambda parameters, **flags: torch.optim.AdamW(parameters, 3e-3, weight_decay=0.1, **flags),
}
