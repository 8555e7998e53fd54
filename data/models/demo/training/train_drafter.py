"""Train the DFlash drafter on what the target generates.

    train_drafter.py --target DIR --out DIR --gsm8k train.jsonl [--seconds 340] [--batches 14] [--roots DIR ...]

Prompts are pieces of Python source and documentation under the roots, and GSM8K's questions; the target continues them at
temperatures 0, 0.6 and 1. The loss is the cross-entropy of a block's 15 masked slots, weighted by exp(-slot / 7), at 24
random anchors of each sequence. Needs a CUDA GPU, PyTorch, tokenizers and safetensors.
"""

import time

STARTED = time.time()  # the time to import everything counts

import argparse
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import corpus
from model import (
    DRAFTER_CONFIG,
    END_OF_TEXT,
    TARGET_CONFIG,
    Drafter,
    Target,
    count_parameters,
    export_weights,
    import_weights,
)
from optimizer import Schedule, make_optimizer, take_step

PROMPT, SEQUENCE = 40, 512  # tokens
GENERATED_AT_ONCE = 2048  # sequences
TEMPERATURES = [0, 0.6, 0, 1.0]  # of the batches in turn
MAXIMUM_DOCUMENTS = 5000
ANCHORS, BATCH = 24, 64
BLOCK = DRAFTER_CONFIG["block_size"]
SLOTS = BLOCK - 1  # the first position of a block holds the anchor, which is known
PEAK_RATE = 2.5e-3


def say(*words):
    print(f"[{time.time() - STARTED:6.1f}]", *words, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--gsm8k", required=True)
    parser.add_argument("--seconds", type=float, default=340)
    parser.add_argument("--batches", type=int, default=14, help=f"of {GENERATED_AT_ONCE} generated sequences")
    parser.add_argument("--roots", nargs="*", default=corpus.default_roots())
    return parser.parse_args()


def load_target(weights):
    target = Target().cuda().eval()
    import_weights(target, weights, "model.")
    return target


def encode_all(tokenizer, texts, shortest):
    """The ids of each text, the end-of-text token first; those of fewer tokens are left out."""
    rows = (np.array([END_OF_TEXT] + encoded.ids, dtype=np.int32) for encoded in tokenizer.encode_batch(texts))
    return [row for row in rows if len(row) >= shortest]


def draw_prompts(documents, questions, count):
    """[count, PROMPT] ids: a quarter the ends of questions, the rest pieces of documents, some of them beginnings."""
    prompts = np.zeros((count, PROMPT), dtype=np.int64)
    for row in range(count):
        if random.random() < 0.25:
            prompts[row] = random.choice(questions)[-PROMPT:]
        else:
            ids = random.choice(documents)
            first = random.randint(0, len(ids) - PROMPT - 1) if random.random() < 0.85 else 0
            prompts[row] = ids[first : first + PROMPT]
    return torch.from_numpy(prompts).cuda()


def empty_cache(count):
    config = TARGET_CONFIG
    shape = (count, config["num_key_value_heads"], SEQUENCE, config["head_dim"])
    return [
        tuple(torch.empty(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        for _ in range(config["num_hidden_layers"])
    ]


def choose_tokens(logits, temperature):
    if temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1)[:, 0]


@torch.no_grad()
def generate(target, prompts, temperature):
    """Prompts [B, PROMPT] continued to [B, SEQUENCE]."""
    sequences = torch.zeros(len(prompts), SEQUENCE, dtype=torch.long, device="cuda")
    sequences[:, :PROMPT] = prompts
    cache = empty_cache(len(prompts))
    hidden = target.step(sequences[:, :PROMPT], 0, cache)[:, -1:]
    for position in range(PROMPT, SEQUENCE):
        logits = F.linear(hidden[:, -1], target.embed_tokens.weight).float()
        tokens = choose_tokens(logits, temperature)
        sequences[:, position] = tokens
        if position < SEQUENCE - 1:
            hidden = target.step(tokens[:, None], position, cache)
    return sequences.to(torch.int16)


def generate_all(target, documents, questions, batches):
    parts = []
    for batch in range(batches):
        temperature = TEMPERATURES[batch % len(TEMPERATURES)]
        parts.append(generate(target, draw_prompts(documents, questions, GENERATED_AT_ONCE), temperature))
        torch.cuda.synchronize()
        if batch < 2:
            say("generated batch", batch, "at temperature", temperature)
    return torch.cat(parts)


def make_drafter(target):
    """A drafter whose layers begin as the target's last two."""
    drafter = Drafter().cuda()
    with torch.no_grad():
        for index, source in enumerate([4, 5]):
            drafter.layers[index].load_state_dict(target.layers[source].state_dict())
    return drafter


def make_mask(anchors, count):
    """[count, 1, ANCHORS * BLOCK, SEQUENCE + ANCHORS * BLOCK]: a slot sees what stands before its anchor, and its block."""
    context = torch.arange(SEQUENCE, device="cuda")
    blocks = torch.arange(ANCHORS, device="cuda").repeat_interleave(BLOCK)
    sees_context = context[None, None] < anchors.repeat_interleave(BLOCK, 1)[:, :, None]
    sees_block = (blocks[:, None] == blocks[None])[None].expand(count, -1, -1)
    return torch.cat([sees_context, sees_block], -1)[:, None]


def draft_loss(target, drafter, weights, sequences, anchors):
    """The loss at anchors [B, ANCHORS] of sequences [B, SEQUENCE], and how many drafts in a row are right, on average."""
    count = len(sequences)
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        _, features = target(sequences, DRAFTER_CONFIG["target_layer_ids"])
    positions = (anchors[:, :, None] + torch.arange(BLOCK, device="cuda")).flatten(1)  # [B, ANCHORS * BLOCK]
    slots = torch.full((count, ANCHORS, BLOCK), DRAFTER_CONFIG["mask_token_id"], device="cuda")
    slots[:, :, 0] = sequences.gather(1, anchors)
    context_positions = torch.arange(SEQUENCE, device="cuda")[None].expand(count, -1)
    embedded, mask = target.embed_tokens(slots.flatten(1)), make_mask(anchors, count)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        hidden = drafter(features, embedded, context_positions, positions, mask)
        hidden = hidden.view(count, ANCHORS, BLOCK, -1)[:, :, 1:]
        logits = F.linear(hidden, target.embed_tokens.weight)
    labels = sequences.gather(1, positions.clamp(max=SEQUENCE - 1)).view(count, ANCHORS, BLOCK)[:, :, 1:]
    losses = F.cross_entropy(logits.float().flatten(0, 2), labels.flatten(), reduction="none")
    accepted = (logits.argmax(-1) == labels).float().cumprod(-1).sum(-1).mean()
    return (losses.view(count, ANCHORS, SLOTS) * weights).sum(-1).mean(), accepted


def slot_weights():
    """exp(-slot / 7), to a sum of 1: an early mistake spoils all that follows."""
    weights = torch.exp(-torch.arange(SLOTS, device="cuda", dtype=torch.float32) / 7.0)
    return weights / weights.sum()


def train(target, drafter, data, seconds):
    weights = slot_weights()
    compiled_loss = torch.compile(lambda sequences, anchors: draft_loss(target, drafter, weights, sequences, anchors))
    optimizer = make_optimizer(drafter)
    schedule = Schedule(PEAK_RATE, STARTED, seconds)
    step = 0
    while (rate := schedule.rate(step)) is not None:
        sequences = data[torch.randint(0, len(data), (BATCH,), device="cuda")].long()
        anchors = torch.randint(PROMPT - 1, SEQUENCE - BLOCK, (BATCH, ANCHORS), device="cuda")
        loss, accepted = compiled_loss(sequences, anchors)
        take_step(drafter, optimizer, rate, loss)
        step += 1
        if step % 300 == 0:
            say("step", step, "loss %.3f" % loss.item(), "accepted drafts %.2f" % accepted.item())
    return step


def main():
    arguments = parse_arguments()
    os.makedirs(arguments.out, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    random.seed(2)
    tokenizer = Tokenizer.from_file(arguments.target + "/tokenizer.json")
    weights = load_file(arguments.target + "/model.safetensors")
    target = load_target(weights)
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    generating_target = load_target(weights).bfloat16()
    say("target loaded")

    documents = corpus.read_drafting_documents(arguments.roots)
    random.shuffle(documents)
    documents = encode_all(tokenizer, documents[:MAXIMUM_DOCUMENTS], 401)
    asked = [f"Question: {entry['question']}\nAnswer:" for entry in corpus.read_gsm8k(arguments.gsm8k)]
    questions = encode_all(tokenizer, asked, PROMPT)
    say("documents", len(documents), "questions", len(questions))

    data = generate_all(generating_target, documents, questions, arguments.batches)
    say("generated million tokens", data.numel() / 1e6)
    drafter = make_drafter(target)
    say("million parameters", count_parameters(drafter) / 1e6)
    steps = train(target, drafter, data, arguments.seconds)
    save_file(export_weights(drafter, ""), arguments.out + "/model.safetensors", metadata={"format": "pt"})
    say("drafter saved, steps", steps)


if __name__ == "__main__":
    main()
