"""The options that both scripts have, and types that refuse a senseless value with one clear line."""

from __future__ import annotations

import argparse
import math
import pathlib
from typing import NoReturn

IMPLEMENTATIONS = ("fused", "foreach", "loop")

# A checkpoint may be continued with other values of these; any other option makes a different training.
FREE = {"device", "workers", "compile", "steps", "stop_at", "out", "resume", "overwrite"} | {
    f"{what}_every" for what in ("log", "val", "checkpoint")
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; argparse would print the usage with all options before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (--help lists the options)\n")


def number(text: str, kind: type, low: float, high: float, wanted: str) -> float:
    try:
        value: float = kind(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:  # also when it is not a number
        raise argparse.ArgumentTypeError(f"expected {wanted}, got {text!r}")
    return value


def positive_int(text: str) -> float:
    return number(text, int, 1, 2**40, "a whole number of at least 1")


def natural(text: str) -> float:
    return number(text, int, 0, 2**40, "a whole number of at least 0")


def seed(text: str) -> float:
    return number(text, int, 0, 2**31 - 1, "a whole number from 0 to 2147483647")


def not_negative(text: str) -> float:
    return number(text, float, 0, 1e30, "a number of at least 0")


def fraction(text: str) -> float:
    return number(text, float, 0, 1 - 1e-9, "a number of at least 0 and less than 1")


def add_shared_options(parser: argparse.ArgumentParser, *, lr: float, out: str) -> None:
    run = parser.add_argument_group("run")
    add = run.add_argument
    add("--device", default="mojo", metavar="NAME", help="mojo, cpu or cuda; also cuda:1 (default: mojo)")
    add("--seed", type=seed, default=1, metavar="N", help="of weights, data and dropout (default: 1)")
    add("--steps", type=positive_int, default=200, metavar="N", help="updates of the weights (default: 200)")
    add("--stop-at", type=positive_int, metavar="STEP", help="stop early, as if interrupted after STEP")
    where = "for checkpoint.pt, loss.csv and loss.png (default: %(default)s)"
    add("--out", type=pathlib.Path, default=pathlib.Path(out), metavar="FOLDER", help=where)
    again = run.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on from the checkpoint in FOLDER")
    again.add_argument("--overwrite", action="store_true", help="start anew although FOLDER has a checkpoint")
    each = "each N steps and at the end; 0: at the end (default: %(default)s)"
    add("--log-every", type=natural, default=10, metavar="N", help=f"read the losses back and show them {each}")
    add("--val-every", type=natural, default=50, metavar="N", help=f"validate {each}")
    add("--checkpoint-every", type=natural, default=100, metavar="N", help=f"write a checkpoint {each}")
    add("--val-batches", type=positive_int, default=8, metavar="N", help="batches of a validation (default: 8)")

    add = parser.add_argument_group("training").add_argument
    add("--lr", type=not_negative, default=lr, metavar="X", help="highest learning rate (default: %(default)s)")
    rise = "steps in which the learning rate rises, before it falls along a cosine (default: 20)"
    add("--warmup", type=natural, default=20, metavar="N", help=rise)
    precision = "autocast's dtype; f16 comes with a GradScaler (default: none)"
    add("--amp", choices=("none", "bf16", "f16"), default="none", help=precision)
    kernels = (
        "one kernel for all parameters, a few, or several for each; with --amp f16 only `fused` leaves the host free "
        "(default: fused)"
    )
    add("--optimizer-impl", choices=IMPLEMENTATIONS, default="fused", help=kernels)
    compiled = "torch.compile with eager, aot_eager or inductor (default: off)"
    add("--compile", choices=("eager", "aot_eager", "inductor"), metavar="BACKEND", help=compiled)


def check_shared_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.compile == "inductor" and args.device.startswith("mojo"):
        parser.error("--compile inductor: the device mojo has no Inductor; use aot_eager")
    found = (args.out / "checkpoint.pt").exists()
    if args.resume and not found:
        parser.error(f"--resume: there is no {args.out / 'checkpoint.pt'}")
    if found and not args.resume and not args.overwrite:
        parser.error(f"{args.out} has a checkpoint: --resume continues it, --overwrite starts anew")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {args.out}: {error.strerror}")


def recipe(args: argparse.Namespace) -> dict[str, object]:
    """The options on which the losses depend."""
    return {name: value for name, value in vars(args).items() if name not in FREE}
