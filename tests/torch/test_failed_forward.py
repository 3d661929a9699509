"""A backward that was queued behind a forward that fails: the error is raised, nothing is written where it must not."""

from __future__ import annotations

import pytest
import torch
from helpers import run_python


@pytest.mark.parametrize("index", [9, 5000, -100000, 10**9])
def test_embedding_scaled_by_frequency_survives_a_bad_index(index):
    run_python(
        f"""
        import torch
        raised = 0
        embedding = torch.nn.Embedding(4, 3, scale_grad_by_freq=True, device="mojo")
        for _ in range(50):
            try:
                embedding(torch.tensor([0, {index}], device="mojo")).sum().backward()
                torch.mojo.synchronize()
            except IndexError as error:
                assert "out of range" in str(error)
                raised += 1
            for _ in range(2):  # the backward's own
                try:
                    torch.mojo.synchronize()
                except IndexError:
                    pass
        assert raised == 50
        embedding.zero_grad()
        embedding(torch.tensor([0, 3, 3], device="mojo")).sum().backward()
        assert embedding.weight.grad[0].tolist() == [1, 1, 1] and embedding.weight.grad[3].tolist() == [1, 1, 1]
        """
    )


@pytest.mark.parametrize("lengths", [[7, 1], [10**9, 1], [-3, 7]])
def test_segment_reduce_survives_bad_lengths(lengths):
    run_python(
        f"""
        import torch
        x = torch.ones(4, 5, device="mojo", requires_grad=True)
        try:
            torch.segment_reduce(x, "sum", lengths=torch.tensor({lengths}, device="mojo")).sum().backward()
            torch.mojo.synchronize()
            raise SystemExit("no error")
        except RuntimeError as error:
            assert "segment_reduce" in str(error), error
        try:
            torch.mojo.synchronize()
        except RuntimeError:
            pass
        x.grad = None
        torch.segment_reduce(x, "sum", lengths=torch.tensor([3, 1], device="mojo")).sum().backward()
        assert x.grad.eq(1).all()
        """
    )


@pytest.mark.parametrize("offsets", [[0, 7, 8]])  # worse ones end the CPU too
def test_segment_reduce_survives_bad_offsets(offsets):
    run_python(
        f"""
        import torch
        x = torch.ones(4, 5, device="mojo", requires_grad=True)
        for _ in range(20):
            try:
                torch.segment_reduce(x, "sum", offsets=torch.tensor({offsets}, device="mojo")).sum().backward()
                torch.mojo.synchronize()
            except RuntimeError as error:
                assert "segment_reduce" in str(error), error
        try:
            torch.mojo.synchronize()
        except RuntimeError:
            pass
        x.grad = None
        torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 3, 4], device="mojo")).sum().backward()
        assert x.grad.eq(1).all()
        """
    )


def test_results_that_a_mask_says_are_not_wanted_are_none(device):
    x = torch.randn(2, 3, 4, 4)
    weight, bias = (torch.randn(3).requires_grad_() for _ in range(2))
    gradients = []
    for place in ("cpu", device):
        mean, var = torch.zeros(3, device=place), torch.ones(3, device=place)
        w, b = (v.detach().to(place).requires_grad_() for v in (weight, bias))
        out = torch.ops.aten._batch_norm_with_update(x.to(place), w, b, mean, var, 0.1, 1e-5)[0]
        gradients.append([g.cpu() for g in torch.autograd.grad(out.square().sum(), (w, b))])
    assert all(map(torch.equal, *gradients))


def test_attention_without_weights_gives_none(device):
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).to(device).eval()
    x = torch.randn(2, 5, 8, device=device)
    with torch.no_grad():
        assert attention(x, x, x, need_weights=False)[1] is None
        assert attention(x, x, x)[1].shape == (2, 5, 5)
