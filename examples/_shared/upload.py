"""Batches that travel to the device while it computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

Batch = tuple[torch.Tensor, ...]


class Uploader:
    """Uploads batches on a stream of its own, one ahead of the computation."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Once: a stream lives until the process ends.
        self.copies = None if device.type == "cpu" else torch.Stream(device)

    def __call__(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches on the device, safe to use on the current stream. Pinned ones make nobody wait."""
        if self.copies is None:
            yield from batches
            return
        source = iter(batches)
        ahead = self._upload(next(source, None))
        while ahead is not None:
            self._hand_over(ahead)
            batch, ahead = ahead, self._upload(next(source, None))  # overlaps with the work on `batch`
            yield batch

    def _upload(self, batch: Batch | None) -> Batch | None:
        if batch is None or self.copies is None:
            return None
        with self.copies:
            return tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)

    def _hand_over(self, batch: Batch) -> None:
        """From the stream that uploads to the one that computes."""
        compute = torch.accelerator.current_stream(self.device)
        if compute != self.copies:  # a device with one queue has no other stream, and is in order already
            compute.wait_stream(self.copies)  # until the batch has arrived
        for tensor in batch:
            tensor.record_stream(compute)  # it was allocated on `copies`, and is dropped while `compute` reads it
