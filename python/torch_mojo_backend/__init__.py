"""A PyTorch backend, device type ``mojo``, whose streams, events, memory and copies are first-class.

Importing this package changes nothing in torch and starts nothing. ``register_mojo_devices()`` makes ``mojo`` the
current accelerator::

    import torch
    import torch_mojo_backend

    torch_mojo_backend.register_mojo_devices()
    device = torch.accelerator.current_accelerator()
"""

from __future__ import annotations

from torch_mojo_backend._torch_version import require_matching_torch

# Before anything loads the native module: a library built for another torch would end in a loader error at best.
require_matching_torch()

from torch_mojo_backend._build_info import version as __version__  # noqa: E402
from torch_mojo_backend._registration import register_mojo_devices  # noqa: E402

__all__ = ["__version__", "register_mojo_devices"]
