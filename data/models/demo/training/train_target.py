"""Build the corpus, train the tokenizer and the target.

    train_target.py --out DIR --gsm8k train.jsonl [--seconds 540] [--roots DIR ...]

The corpus is the Python source and documentation under the roots (by default this Python's standard library and installed
packages), GSM8K's training set and generated arithmetic problems. Needs a CUDA GPU, PyTorch, tokenizers and safetensors.
"""

import time

STARTED = time.time()  # the time to import everything counts

import argparse
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus
from model import END_OF_TEXT, SPECIAL_TOKENS, TARGET_CONFIG, Target, count_parameters, export_weights
from optimizer import Schedule, make_optimizer, take_step

SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BATCH, QUESTIONS_IN_BATCH, SEQUENCE = 96, 16, 1024
PEAK_RATE = 4e-3
HELD_OUT_DOCUMENTS = 200
RESERVED_SECONDS = 15
SAMPLE_PROMPTS = [
    "def fibonacci(n):\n",
    "Question: Ben has 12 apples and buys 9 more. How many apples does Ben have now?\nAnswer:",
    'class LinearRegression:\n    """',
]


def say(*words):
    print(f"[{time.time() - STARTED:6.1f}]", *words, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--gsm8k", required=True)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--roots", nargs="*", default=corpus.default_roots())
    return parser.parse_args()


def train_tokenizer(documents, question_documents):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TARGET_CONFIG["vocab_size"],
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sample = random.sample(documents, min(len(documents), 5000)) + random.sample(question_documents, 1500)
    tokenizer.train_from_iterator(sample, trainer)
    return tokenizer


def encode_all(tokenizer, documents):
    """All documents in one row of ids, each with the end-of-text token before it."""
    rows = []
    for first in range(0, len(documents), 4000):
        for encoded in tokenizer.encode_batch(documents[first : first + 4000]):
            rows.append(np.array([END_OF_TEXT] + encoded.ids, dtype=np.uint16))
    return np.concatenate(rows)


def to_device(ids):
    return torch.from_numpy(ids.astype(np.int32)).cuda()


def draw_batch(documents, questions):
    """[BATCH, SEQUENCE + 1] ids from random places of the two rows."""
    places = torch.randint(0, len(documents) - SEQUENCE - 1, (BATCH - QUESTIONS_IN_BATCH,), device="cuda")
    question_places = torch.randint(0, len(questions) - SEQUENCE - 1, (QUESTIONS_IN_BATCH,), device="cuda")
    offsets = torch.arange(SEQUENCE + 1, device="cuda")
    return torch.cat([documents[places[:, None] + offsets], questions[question_places[:, None] + offsets]]).long()


def language_loss(target, ids):
    """Mean cross-entropy of each next token, in nats."""
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = F.linear(target(ids[:, :-1]), target.embed_tokens.weight)
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def train(target, documents, questions, seconds):
    optimizer = make_optimizer(target)
    compiled_loss = torch.compile(lambda ids: language_loss(target, ids))
    schedule = Schedule(PEAK_RATE, STARTED, seconds, RESERVED_SECONDS)
    step = 0
    while (rate := schedule.rate(step)) is not None:
        loss = compiled_loss(draw_batch(documents, questions))
        take_step(target, optimizer, rate, loss)
        step += 1
        if step % 300 == 0:
            tokens = step * BATCH * SEQUENCE / 1e6
            say("step", step, "loss %.3f" % loss.item(), "rate %.5f" % rate, "million tokens", tokens)
    return step


@torch.no_grad()
def held_out_losses(target, held_out):
    """The losses of four batches of 32 sequences."""
    size = (SEQUENCE + 1) * 32
    batches = (held_out[first * size : (first + 1) * size].view(32, SEQUENCE + 1).long() for first in range(4))
    return [language_loss(target, batch).item() for batch in batches]


@torch.no_grad()
def print_samples(target, tokenizer):
    """The greedy continuations of a few prompts, 96 tokens each."""
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for prompt in SAMPLE_PROMPTS:
            ids = [END_OF_TEXT] + tokenizer.encode(prompt).ids
            for _ in range(96):
                hidden = target(torch.tensor([ids], device="cuda"))[0, -1]
                ids.append(int(F.linear(hidden, target.embed_tokens.weight).argmax()))
            print("---", tokenizer.decode(ids), flush=True)


def main():
    arguments = parse_arguments()
    os.makedirs(arguments.out, exist_ok=True)
    random.seed(1)
    documents = corpus.read_documents(arguments.roots)
    say("documents", len(documents), "million characters", sum(map(len, documents)) / 1e6)
    question_documents = corpus.make_question_documents(corpus.read_gsm8k(arguments.gsm8k), 60000)
    say("questions, million characters", sum(map(len, question_documents)) / 1e6)

    tokenizer = train_tokenizer(documents, question_documents)
    tokenizer.save(arguments.out + "/tokenizer.json")
    say("tokenizer saved")

    random.shuffle(documents)
    held_out = encode_all(tokenizer, documents[:HELD_OUT_DOCUMENTS])
    training_ids = encode_all(tokenizer, documents[HELD_OUT_DOCUMENTS:])
    question_ids = encode_all(tokenizer, question_documents)
    say("million tokens", len(training_ids) / 1e6, len(question_ids) / 1e6)

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    target = Target().cuda()
    say("million parameters", count_parameters(target) / 1e6)
    steps = train(target, to_device(training_ids), to_device(question_ids), arguments.seconds)
    say("held-out losses", held_out_losses(target, to_device(held_out)), "steps", steps)
    save_file(export_weights(target, "model."), arguments.out + "/model.safetensors", metadata={"format": "pt"})
    print_samples(target, tokenizer)
    say("done")


if __name__ == "__main__":
    main()
