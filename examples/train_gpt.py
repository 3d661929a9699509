"""Trains a GPT on text, byte by byte.

    python examples/train_gpt.py                              # tiny, on the device mojo
    python examples/train_gpt.py --size small --amp bf16
    python examples/train_gpt.py --size gpt2 --amp bf16 --device cuda

The text is the source of Python's standard library, or any file given with --data. The training step (`Trainer.step`)
never makes the host wait: batches come through pinned memory on a stream of their own, the losses stay on the device
until they are shown. docs/training.md says more.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import pathlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from _shared.arguments import (
    Parser,
    add_shared_options,
    check_shared_options,
    fraction,
    not_negative,
    positive_int,
)
from _shared.device import autocast, open_device
from _shared.loop import Loop
from _shared.schedule import optimizer_flags, warmup_cosine
from _shared.state import State
from _shared.upload import Batch, Uploader
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    layers: int
    heads: int
    width: int
    context: int  # bytes that a prediction may look at
    vocabulary: int
    batch: int


SIZES = {
    "tiny": Size(layers=2, heads=2, width=64, context=64, vocabulary=256, batch=8),
    "small": Size(layers=4, heads=4, width=256, context=128, vocabulary=256, batch=8),
    # GPT-2's 124 M parameters. Its vocabulary is larger than bytes need, which leaves the size of the work unchanged.
    "gpt2": Size(layers=12, heads=12, width=768, context=1024, vocabulary=50257, batch=8),
}


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class GPT(nn.Module):
    """A decoder as GPT-2's: learned positions, norms before each part, and one matrix for embedding and output."""

    def __init__(self, size: Size, context: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(context, size.width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(size.width, size.heads, dropout) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.register_buffer("places", torch.arange(context), persistent=False)  # never uploaded again
        self.apply(self._initialize)
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # what is added to the residual, twice a layer
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * size.layers))

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.tokens(tokens) + self.positions(self.places[: tokens.shape[1]]))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


class Text:
    """A text as bytes: its first nine tenths for training, the rest for validation."""

    def __init__(self, data: bytes, context: int, batch: int, seed: int, pin: bool) -> None:
        text = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        cut = len(text) * 9 // 10
        self.training, self.validation = text[:cut], text[cut:]
        self.window = torch.arange(context + 1)  # one more: each byte's target is the byte after it
        self.batch, self.seed, self.pin = batch, seed, pin

    def training_batches(self, first: int) -> Iterator[Batch]:
        """Random windows. A batch depends on the seed and its number alone: a resumed run gets the same ones."""
        generator = torch.Generator()
        while True:
            generator.manual_seed((self.seed << 32) + first)
            starts = torch.randint(len(self.training) - len(self.window) + 1, (self.batch,), generator=generator)
            yield self._windows(self.training, starts)
            first += 1

    def validation_batches(self, count: int) -> Iterator[Batch]:
        """Windows that are evenly spread over the text."""
        starts = torch.linspace(0, len(self.validation) - len(self.window), count * self.batch).long()
        for some in starts.view(count, self.batch):
            yield self._windows(self.validation, some)

    def _windows(self, text: Tensor, starts: Tensor) -> Batch:
        windows = text[starts[:, None] + self.window]  # bytes, an eighth of what the device will make of them
        return (windows.pin_memory() if self.pin else windows,)


def read_text(path: pathlib.Path | None) -> bytes:
    if path is not None:
        return path.read_bytes()
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    return b"\n".join(file.read_bytes() for file in sorted(library.glob("*.py")))


class Trainer:
    """Model, data and optimizer of a run, and its training step."""

    def __init__(self, parser: argparse.ArgumentParser, args: argparse.Namespace, data: bytes) -> None:
        self.args = args
        self.device = device = open_device(parser, args.device)
        torch.manual_seed(args.seed)
        # Made on the CPU, so that every device begins with the same weights.
        self.model = GPT(SIZES[args.size], args.context, args.dropout).to(device)
        self.forward = torch.compile(self.model, backend=args.compile) if args.compile else self.model
        # Weights that multiply are decayed, biases and norms are not.
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": args.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        flags = optimizer_flags(args.optimizer_impl)
        if args.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(groups, lr=args.lr, momentum=0.9, **flags)
        else:
            kind = torch.optim.AdamW if args.optimizer == "adamw" else torch.optim.Adam
            self.optimizer = kind(groups, lr=args.lr, betas=(0.9, 0.95), **flags)
        self.scheduler = warmup_cosine(self.optimizer, args.warmup, args.steps)
        self.scaler = torch.amp.GradScaler(device.type, enabled=args.amp == "f16")
        title = f"GPT {args.size}"
        self.state = State(args, device, self.model, self.optimizer, self.scheduler, self.scaler, title)
        self.state.begin(parser)
        self.upload = Uploader(device)
        self.text = Text(data, args.context, args.batch_size, args.seed, pin=device.type != "cpu")
        self.batches = self.upload(self.text.training_batches(self.state.step * args.accumulate))

    def loss(self, windows: Tensor) -> Tensor:
        tokens = windows.long()
        with autocast(self.device, self.args.amp):
            logits = self.forward(tokens[:, :-1])
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def step(self) -> Tensor:
        """Queues one update of the weights; nothing here waits for the device."""
        total = torch.zeros((), device=self.device)
        for _ in range(self.args.accumulate):
            (windows,) = next(self.batches)
            loss = self.loss(windows) / self.args.accumulate
            self.scaler.scale(loss).backward()
            total += loss.detach()
        if self.args.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.state.update()
        return total

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        self.model.eval()
        losses = [self.loss(windows) for (windows,) in self.upload(self.text.validation_batches(self.args.val_batches))]
        self.model.train()
        return {"validation_loss": torch.stack(losses).mean().item()}


def make_parser() -> Parser:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_argument_group("model and data")
    model.add_argument("--size", choices=SIZES, default="tiny", help="gpt2 has 124 M parameters (default: tiny)")
    model.add_argument("--context", type=positive_int, metavar="BYTES", help="length of a window (default: --size's)")
    model.add_argument("--batch-size", type=positive_int, metavar="N", help="windows in a batch (default: --size's)")
    model.add_argument("--dropout", type=fraction, default=0.0, metavar="P", help="(default: 0)")
    model.add_argument("--data", type=pathlib.Path, metavar="FILE", help="a text (default: Python's standard library)")
    add_shared_options(parser, lr=1e-3, out="runs/gpt")
    update = parser.add_argument_group("update")
    update.add_argument("--optimizer", choices=("adamw", "adam", "sgd"), default="adamw", help="(default: adamw)")
    update.add_argument("--weight-decay", type=not_negative, default=0.1, metavar="X", help="(default: 0.1)")
    update.add_argument("--clip", type=not_negative, default=1.0, metavar="NORM",
                        help="longest gradient; 0: any (default: 1)")  # fmt: skip
    update.add_argument("--accumulate", type=positive_int, default=1, metavar="N", help="batches a step (default: 1)")
    return parser


def parse(arguments: list[str] | None = None) -> tuple[Parser, argparse.Namespace, bytes]:
    parser = make_parser()
    args = parser.parse_args(arguments)
    size = SIZES[args.size]
    args.context = args.context or size.context
    args.batch_size = args.batch_size or size.batch
    try:
        data = read_text(args.data)
    except OSError as error:
        parser.error(f"--data {args.data}: {error.strerror}")
    if len(data) < 20 * (args.context + 1):
        parser.error(f"a text of {len(data)} bytes is too short for windows of --context {args.context}; give --data")
    args.data = "sha256:" + hashlib.sha256(data).hexdigest()[:16]  # a checkpoint is of this text, wherever it lies
    check_shared_options(parser, args)
    return parser, args, data


def main(arguments: list[str] | None = None) -> int:
    parser, args, data = parse(arguments)
    trainer = Trainer(parser, args, data)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    print(f"GPT {args.size}, {parameters:,} parameters, {len(data):,} bytes of text, on {trainer.device}", flush=True)
    items = args.accumulate * args.batch_size * args.context
    return Loop(trainer.state, trainer.step, trainer.validate, items, "tokens").run()


if __name__ == "__main__":
    sys.exit(main())
