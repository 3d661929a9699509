"""The library transformers as installed, with another device string: what its models give equals the CPU's."""

import contextlib
import copy
import os

import pytest
import torch
from cpu_reference import FedMasks, RecordedMasks, check_same
from torch import Tensor
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are made from configurations; nothing is fetched
transformers = pytest.importorskip("transformers")

VOCABULARY, PAD, END = 64, 0, 1
DROPOUT = 0.25  # of which float32 has 1 - p


def common(attention: str) -> dict:
    """What every configuration here has."""
    return {"vocab_size": VOCABULARY, "pad_token_id": PAD, "attn_implementation": attention}


def gpt2(attention: str):
    config = transformers.GPT2Config(
        **common(attention),
        n_positions=48,
        n_embd=32,
        initializer_range=0.2,
        n_layer=2,
        n_head=4,
        resid_pdrop=DROPOUT,
        embd_pdrop=DROPOUT,
        attn_pdrop=DROPOUT,
        bos_token_id=END,
        eos_token_id=END,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(attention: str):
    config = transformers.LlamaConfig(
        **common(attention),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=48,
        attention_dropout=DROPOUT,
        bos_token_id=END,
        eos_token_id=END,
    )
    return transformers.LlamaForCausalLM(config)


def bert_config(attention: str, **more):
    return transformers.BertConfig(
        **common(attention),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=48,
        hidden_dropout_prob=DROPOUT,
        attention_probs_dropout_prob=DROPOUT,
        **more,
    )


def bert(attention: str):
    return transformers.BertForMaskedLM(bert_config(attention))


def bert_classifier(attention: str):
    return transformers.BertForSequenceClassification(bert_config(attention, num_labels=3))


def bert_decoder(attention: str):
    return transformers.BertLMHeadModel(bert_config(attention, is_decoder=True, bos_token_id=END, eos_token_id=END))


MODELS = {make.__name__: make for make in (gpt2, llama, bert, bert_classifier, bert_decoder)}
GENERATING = ["gpt2", "llama", "bert_decoder"]
SEEDS = [s if s < 2 else pytest.param(s, marks=pytest.mark.slow) for s in range(20)]
every_model = pytest.mark.parametrize("name", MODELS)
every_generator = pytest.mark.parametrize("name", GENERATING)
every_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])


def on_cpu(name: str, attention: str = "sdpa"):
    """The same weights at each call."""
    torch.manual_seed(30)
    return MODELS[name](attention).eval()


def batch_for(name: str, *, padded: bool = True) -> dict[str, Tensor]:
    """Three texts, of which one is shorter."""
    generator = torch.Generator().manual_seed(31)
    tokens = torch.randint(2, VOCABULARY, (3, 12), generator=generator)
    batch = {"input_ids": tokens, "labels": torch.tensor([2, 0, 1]) if name == "bert_classifier" else tokens.clone()}
    if padded:
        mask = torch.ones_like(tokens)
        mask[1, 8:] = 0
        batch["attention_mask"] = mask
        if name != "bert_classifier":
            batch["labels"][1, 8:] = -100
    return batch


def to(device: torch.device, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.to(device) for key, value in batch.items()}


def check_outputs(ours, theirs) -> None:
    check_same([ours.loss, ours.logits], [theirs.loss, theirs.logits], "output")


def check_gradients(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    for (name, a), (_, e) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        check_same([a.grad], [e.grad], f"gradient of {name}")


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@every_attention
@every_model
def test_forward_and_backward(device, name, attention, padded):
    theirs, batch = on_cpu(name, attention), batch_for(name, padded=padded)
    ours = copy.deepcopy(theirs).to(device)
    expected, actual = theirs(**batch), ours(**to(device, batch))
    check_outputs(actual, expected)
    expected.loss.backward()
    actual.loss.backward()
    check_gradients(ours, theirs)


def train(model: torch.nn.Module, batch: dict[str, Tensor], steps: int = 3) -> list[Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=True)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def check_training(device: torch.device, name: str, attention: str, uploading: torch.Stream | None = None) -> None:
    theirs, batch = on_cpu(name, attention).train(), batch_for(name)
    with uploading or contextlib.nullcontext():
        ours, our_batch = copy.deepcopy(theirs).to(device), to(device, batch)
    if uploading is not None:
        torch.accelerator.current_stream().wait_stream(uploading)
    with RecordedMasks() as recorded:
        actual = train(ours, our_batch)
    with FedMasks(recorded.masks) as fed:
        expected = train(theirs, batch)
    fed.check_all_used()
    check_same(actual, expected, "loss")
    check_same(ours.parameters(), theirs.parameters(), "parameter")


@every_attention
@every_model
def test_training_with_dropout_equals_the_cpus_with_the_same_masks(device, name, attention):
    check_training(device, name, attention)


@pytest.fixture(scope="module")
def side() -> torch.Stream:
    return torch.Stream("mojo:0")


@pytest.mark.parametrize("seed", SEEDS)
@every_model
def test_training_under_an_adversarial_schedule(device, side, name, seed):
    """Of a model that another stream uploads."""
    with schedule(seed):
        check_training(device, name, "sdpa", side)


def prompts(device: torch.device | str) -> dict[str, Tensor]:
    """Two, of which one is shorter: filled up on the left."""
    tokens = torch.tensor([[5, 9, 33, 7], [PAD, PAD, 12, 40]], device=device)
    return {"input_ids": tokens, "attention_mask": (tokens != PAD).long()}


WAYS = {
    "greedy": {},
    "without a cache": {"use_cache": False},
    "beams": {"num_beams": 3},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 5},
}


@pytest.mark.parametrize("way", WAYS)
@every_attention
@every_generator
def test_generate_equals_the_cpus(device, name, attention, way):
    theirs = on_cpu(name, attention)
    ours = copy.deepcopy(theirs).to(device)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": PAD, **WAYS[way]}
    expected, actual = theirs.generate(**prompts("cpu"), **options), ours.generate(**prompts(device), **options)
    assert actual.device == device
    assert actual.tolist() == expected.tolist()
    assert expected.shape[1] > 4


@pytest.mark.parametrize("seed", SEEDS)
@every_generator
def test_generate_under_an_adversarial_schedule(device, side, name, seed):
    """Of a model that another stream uploads."""
    theirs = on_cpu(name)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": PAD}
    with schedule(seed):
        with side:
            ours = copy.deepcopy(theirs).to(device)
        torch.accelerator.current_stream().wait_stream(side)
        actual = ours.generate(**prompts(device), **options)
        assert actual.tolist() == theirs.generate(**prompts("cpu"), **options).tolist()


@every_generator
def test_generate_with_samples_repeats_with_the_seed(device, name):
    model = on_cpu(name).to(device)

    def sampled(seed: int) -> list:
        torch.manual_seed(seed)
        options = {"max_new_tokens": 12, "do_sample": True, "top_k": 20, "top_p": 0.95, "temperature": 1.2}
        return model.generate(**prompts(device), pad_token_id=PAD, **options).tolist()

    assert sampled(1) == sampled(1)
    assert len({str(sampled(seed)) for seed in (1, 2, 3)}) > 1


@every_model
def test_a_step_is_queued_without_a_wait(device, name):
    """Of full texts: the library itself looks at a mask, and without one for a token that fills up."""
    model, batch = on_cpu(name).train().to(device), to(device, batch_for(name, padded=False))
    model.config.pad_token_id = None
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=True)
    torch.accelerator.synchronize()
    with Gate(timeout=30), assert_no_host_wait():
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.isfinite()


@every_model
def test_bfloat16_weights(device, name):
    """Converted, as large models are run."""
    theirs, batch = on_cpu(name).to(torch.bfloat16), batch_for(name)
    ours = copy.deepcopy(theirs).to(device)
    expected, actual = theirs(**batch), ours(**to(device, batch))
    check_outputs(actual, expected)
    expected.loss.backward()
    actual.loss.backward()
    check_gradients(ours, theirs)


def test_a_saved_model_is_loaded_onto_the_device(device, tmp_path):
    theirs = on_cpu("llama")
    theirs.save_pretrained(tmp_path)
    ours = transformers.LlamaForCausalLM.from_pretrained(tmp_path).to(device)
    mapped = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).to(device)
    check_same(ours.parameters(), theirs.parameters(), "parameter")
    assert {p.dtype for p in mapped.parameters()} == {torch.bfloat16}
    check_same([ours(**prompts(device)).logits], [theirs(**prompts("cpu")).logits], "logits")
    ours.save_pretrained(tmp_path / "again")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "again")
    assert all(torch.equal(a, e) for a, e in zip(again.parameters(), theirs.parameters(), strict=True))
