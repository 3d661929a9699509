"""Inductor, the default backend of ``torch.compile``, generates no code for the device and has to say so."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import itertools
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import torch

from torch_mojo_backend._registration import DEVICE_TYPE

# Its function compile_fx is what every use of Inductor goes through, and is looked up there at each use.
_MODULE = "torch._inductor.compile_fx"


def refuse_inductor() -> None:
    """Makes Inductor refuse graphs with tensors of the device by one clear text, and leaves all other graphs to it.

    Imports nothing of it, for that takes seconds: an import that comes later is changed when it comes.
    """
    if (module := sys.modules.get(_MODULE)) is not None:
        _change(module)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module as Python does, and has it changed once it has been executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_change(module: ModuleType) -> None:
                execute(module)
                _change(module)

            spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


def _change(module: ModuleType) -> None:
    compile_fx = module.compile_fx

    @functools.wraps(compile_fx)
    def checked(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_on_device(_tensors_of(model_, example_inputs_)):
            raise RuntimeError(
                "mojo backend: torch.compile's default backend, 'inductor', generates no code for the device "
                f"'{DEVICE_TYPE}'. These work: torch.compile(..., backend='aot_eager'), torch.compile(..., "
                "backend='eager')"
            )
        return compile_fx(model_, example_inputs_, *args, **kwargs)

    module.compile_fx = checked  # type: ignore[attr-defined]


def _is_on_device(values: Iterable[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE for value in values)


def _tensors_of(model: Any, inputs: Any) -> Iterable[Any]:
    """What goes into a graph, and what is known of the values inside it and its subgraphs."""
    if isinstance(inputs, list | tuple):
        yield from inputs
    if not isinstance(model, torch.nn.Module):
        return
    yield from itertools.chain(model.parameters(), model.buffers())
    for part in model.modules():
        graph = getattr(part, "graph", None)
        for node in getattr(graph, "nodes", ()):
            for value in (node.meta.get("example_value"), node.meta.get("val")):
                yield from value if isinstance(value, list | tuple) else (value,)
