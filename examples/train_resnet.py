"""Trains a ResNet on generated images.

    python examples/train_resnet.py                           # tiny, 32x32 pixels, on the device mojo
    python examples/train_resnet.py --size 18 --image-size 64 --classes 20 --batch-size 16
    python examples/train_resnet.py --size 50 --amp bf16 --channels-last --workers 8 --device cuda

Each class is a pattern of colours, which the images show shifted and under noise; every image is made from the seed and
its number when it is needed, as another data set would read it from a file. The training step (`Trainer.step`) never
makes the host wait: a DataLoader pins the batches, a stream of its own uploads them, the losses stay on the device
until they are shown. docs/training.md says more.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from _shared.arguments import (
    Parser,
    add_shared_options,
    check_shared_options,
    fraction,
    natural,
    not_negative,
    positive_int,
)
from _shared.device import autocast, open_device
from _shared.interrupt import ignore_in_worker
from _shared.loop import Loop
from _shared.schedule import optimizer_flags, warmup_cosine
from _shared.state import State
from _shared.upload import Uploader
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass(frozen=True)
class Size:
    blocks: tuple[int, ...]  # in each stage; a stage has half the resolution and twice the channels of the one before
    bottleneck: bool
    width: int  # channels of the first stage
    image: int  # pixels, square
    classes: int
    batch: int


SIZES = {
    "tiny": Size(blocks=(1, 1, 1), bottleneck=False, width=8, image=32, classes=10, batch=32),
    "18": Size(blocks=(2, 2, 2, 2), bottleneck=False, width=64, image=224, classes=1000, batch=64),
    "50": Size(blocks=(3, 4, 6, 3), bottleneck=True, width=64, image=224, classes=1000, batch=64),
}


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution that keeps the resolution, up to the stride, and its norm, which has the bias."""
    return [nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    """Adds to its input what two convolutions make of it, in a bottleneck three, of which the middle one is narrow."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                *convolution(inputs, width, 1), nn.ReLU(inplace=True),
                *convolution(width, width, 3, stride), nn.ReLU(inplace=True),
                *convolution(width, outputs, 1),
            )  # fmt: skip
        else:
            self.body = nn.Sequential(
                *convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), *convolution(width, width, 3)
            )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, size: Size, classes: int) -> None:
        super().__init__()
        width = size.width
        if size.image <= 64:  # small images: nothing is thrown away at the entry
            self.entry = nn.Sequential(*convolution(3, width, 3), nn.ReLU(inplace=True))
        else:
            self.entry = nn.Sequential(
                *convolution(3, width, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)
            )
        stages, channels = [], width
        for stage, count in enumerate(size.blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Block(channels, width << stage, stride, size.bottleneck))
                channels = (4 if size.bottleneck else 1) * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, Block):
                nn.init.zeros_(module.body[-1].weight)  # each block begins as its shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.entry(x)).mean(dim=(2, 3)))


class Images(Dataset):
    """Generated images as bytes, and their classes. Image `i` is a function of the seed and `i`."""

    def __init__(self, first: int, count: int, classes: int, pixels: int, seed: int) -> None:
        self.first, self.count, self.pixels, self.seed = first, count, pixels, seed
        self.patterns = torch.randn(classes, 3, 4, 4, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.first + index
        label = image % len(self.patterns)
        generator = torch.Generator().manual_seed((self.seed << 32) + image)
        pattern = F.interpolate(self.patterns[label][None], size=2 * [self.pixels], mode="bilinear")[0]
        down, right = torch.randint(self.pixels // 4 + 1, (2,), generator=generator).tolist()
        noise = torch.randn(pattern.shape, generator=generator)
        shown = 128 + 32 * pattern.roll((down, right), dims=(1, 2)) + 32 * noise
        return shown.clamp(0, 255).to(torch.uint8), label


class Shuffled(Sampler):
    """Batches of numbers below `count`, epoch after epoch without end, beginning with batch `first`.

    Each epoch's order depends on the seed and its number alone, so that a resumed run gets the same batches.
    """

    def __init__(self, count: int, batch: int, seed: int, first: int) -> None:
        self.count, self.batch, self.seed, self.first = count, batch, seed, first

    def __iter__(self) -> Iterator[list[int]]:
        in_epoch = self.count // self.batch
        for epoch in itertools.count(self.first // in_epoch):
            order = torch.randperm(self.count, generator=torch.Generator().manual_seed((self.seed << 32) + epoch))
            batches = order[: in_epoch * self.batch].view(in_epoch, self.batch).tolist()
            yield from batches[max(0, self.first - epoch * in_epoch) :]


class Trainer:
    """Model, data and optimizer of a run, and its training step."""

    def __init__(self, parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
        self.args = args
        self.device = device = open_device(parser, args.device)
        self.format = torch.channels_last if args.channels_last else torch.contiguous_format
        torch.manual_seed(args.seed)
        # Made on the CPU, so that every device begins with the same weights.
        self.model = ResNet(SIZES[args.size], args.classes).to(device, memory_format=self.format)
        self.forward = torch.compile(self.model, backend=args.compile) if args.compile else self.model
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=args.weight_decay,
            nesterov=args.momentum > 0, **optimizer_flags(args.optimizer_impl),
        )  # fmt: skip
        self.scheduler = warmup_cosine(self.optimizer, args.warmup, args.steps)
        self.scaler = torch.amp.GradScaler(device.type, enabled=args.amp == "f16")
        title = f"ResNet {args.size}"
        self.state = State(args, device, self.model, self.optimizer, self.scheduler, self.scaler, title)
        self.state.begin(parser)
        self.upload = Uploader(device)
        shown = (args.classes, args.image_size, args.seed)
        seen, unseen = Images(0, args.images, *shown), Images(args.images, args.val_batches * args.batch_size, *shown)
        order = Shuffled(args.images, args.batch_size, args.seed, first=self.state.step)
        self.batches = self.upload(self._loader(seen, batch_sampler=order))
        self.validation = self._loader(unseen, batch_size=args.batch_size)

    def _loader(self, images: Images, **how: object) -> DataLoader:
        workers = self.args.workers
        return DataLoader(
            images, num_workers=workers, persistent_workers=workers > 0, worker_init_fn=ignore_in_worker,
            pin_memory=self.device.type != "cpu",
            generator=torch.Generator().manual_seed(self.args.seed),  # or each epoch would draw from the default one
            **how,
        )  # fmt: skip

    def predict(self, images: Tensor) -> Tensor:
        pixels = images.to(torch.float32, memory_format=self.format).div_(127.5).sub_(1)  # bytes were uploaded
        return self.forward(pixels)

    def step(self) -> Tensor:
        """Queues one update of the weights; nothing here waits for the device."""
        images, labels = next(self.batches)
        with autocast(self.device, self.args.amp):
            loss = F.cross_entropy(self.predict(images), labels, label_smoothing=self.args.label_smoothing)
        self.scaler.scale(loss).backward()
        self.state.update()
        return loss.detach()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        self.model.eval()
        losses, right = [], []
        for images, labels in self.upload(self.validation):
            with autocast(self.device, self.args.amp):
                logits = self.predict(images)
                losses.append(F.cross_entropy(logits, labels))
            right.append((logits.argmax(dim=1) == labels).float().mean())
        self.model.train()
        loss, accuracy = torch.stack([torch.stack(losses).mean(), torch.stack(right).mean()]).tolist()
        return {"validation_loss": loss, "validation_accuracy": accuracy}


def make_parser() -> Parser:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_argument_group("model and data")
    model.add_argument("--size", choices=SIZES, default="tiny", help="the layers, and the defaults (default: tiny)")
    model.add_argument("--image-size", type=positive_int, metavar="PIXELS", help="(default: --size's, 32 or 224)")
    model.add_argument("--classes", type=positive_int, metavar="N", help="(default: --size's, 10 or 1000)")
    model.add_argument("--batch-size", type=positive_int, metavar="N", help="(default: --size's, 32 or 64)")
    model.add_argument("--images", type=positive_int, default=51200, metavar="N", help="in an epoch (default: 51200)")
    model.add_argument("--workers", type=natural, default=0, metavar="N",
                       help="processes that make images; 0: none (default: 0)")  # fmt: skip
    model.add_argument("--channels-last", action="store_true", help="keep the channels of a pixel side by side")
    add_shared_options(parser, lr=0.1, out="runs/resnet")
    update = parser.add_argument_group("update")
    update.add_argument("--momentum", type=fraction, default=0.9, metavar="X", help="Nesterov's (default: 0.9)")
    update.add_argument("--weight-decay", type=not_negative, default=5e-4, metavar="X", help="(default: 5e-4)")
    update.add_argument("--label-smoothing", type=fraction, default=0.1, metavar="X", help="(default: 0.1)")
    return parser


def parse(arguments: list[str] | None = None) -> tuple[Parser, argparse.Namespace]:
    parser = make_parser()
    args = parser.parse_args(arguments)
    size = SIZES[args.size]
    args.image_size = args.image_size or size.image
    args.classes = args.classes or size.classes
    args.batch_size = args.batch_size or size.batch
    if args.batch_size > args.images:
        parser.error(f"--batch-size {args.batch_size} is more than --images {args.images}")
    check_shared_options(parser, args)
    return parser, args


def main(arguments: list[str] | None = None) -> int:
    parser, args = parse(arguments)
    trainer = Trainer(parser, args)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    print(f"ResNet {args.size}, {parameters:,} parameters, {args.image_size}x{args.image_size} pixels, "
          f"{args.classes} classes, on {trainer.device}", flush=True)  # fmt: skip
    return Loop(trainer.state, trainer.step, trainer.validate, args.batch_size, "images").run()


if __name__ == "__main__":
    sys.exit(main())
