"""The texts that the models are trained on: files of a Python installation, GSM8K, generated arithmetic problems."""

import hashlib
import json
import os
import random
import re
import sysconfig

NAMES = "Ana Ben Cleo Dan Eva Finn Gus Hana Ivan Jo Kim Leo Mia Noor Omar Pia Quinn Rosa Sam Tara".split()
THINGS = "apples books cards coins eggs marbles pencils shells stamps tickets".split()


def default_roots():
    """The folders of this Python's standard library and of its installed packages."""
    paths = sysconfig.get_paths()
    return [paths["stdlib"], paths["purelib"]]


def walk_texts(roots, suffixes, smallest, largest):
    """(path, text) of each UTF-8 file of more than `smallest` and less than `largest` bytes; links are left out."""
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                if not name.endswith(suffixes):
                    continue
                path = os.path.join(folder, name)
                try:
                    if os.path.islink(path) or not smallest < os.path.getsize(path) < largest:
                        continue
                    with open(path, encoding="utf-8") as stream:
                        text = stream.read()
                except (OSError, ValueError):
                    continue
                yield path, text


def is_table_or_foreign(text):
    """More than 12 % digits, or less than 97 % ASCII."""
    digits = sum(character.isdigit() for character in text) / len(text)
    ascii_share = sum(ord(character) < 128 for character in text) / len(text)
    return digits > 0.12 or ascii_share < 0.97


def drop_header(text):
    """Leaves out leading comments of more than four lines: licences, which repeat everywhere."""
    lines = text.split("\n")
    first = 0
    while first < len(lines) and (lines[first].startswith("#") or not lines[first].strip()):
        first += 1
    return "\n".join(lines[first:]) if first > 4 else text


def is_package_list(path, text):
    return "RECORD" in path or "top_level" in path or "entry_points" in path or text.count("\n") < 5


def read_documents(roots):
    """Source and documentation, each text once (by its first 4,000 characters without white space)."""
    documents, seen = [], set()
    for path, text in walk_texts(roots, (".py", ".md", ".rst", ".txt"), 400, 200_000):
        digest = hashlib.md5(re.sub(r"\s+", "", text[:4000]).encode()).digest()
        if digest in seen:
            continue
        seen.add(digest)
        if is_table_or_foreign(text) or max(map(len, text.split("\n"))) > 1000:
            continue
        if path.endswith(".txt") and is_package_list(path, text):
            continue
        documents.append(drop_header(text) if path.endswith(".py") else text)
    return documents


def read_drafting_documents(roots):
    """Longer texts, from which the prompts for the drafter's training are cut."""
    texts = walk_texts(roots, (".py", ".rst", ".md"), 1000, 150_000)
    return [drop_header(text) for _, text in texts if not is_table_or_foreign(text)]


def read_gsm8k(path):
    """The entries {"question", "answer"} of GSM8K's train.jsonl."""
    with open(path) as stream:
        return [json.loads(line) for line in stream]


def format_gsm8k(entry):
    """Question and answer as one text, without the calculator's annotations <<...>>."""
    return f"Question: {entry['question']}\nAnswer: " + re.sub(r"<<.*?>>", "", entry["answer"]) + "\n"


def make_problem():
    """One arithmetic problem with its solution, of five kinds."""
    a, b = random.sample(NAMES, 2)
    things = random.choice(THINGS)
    x, y, z = random.randint(2, 60), random.randint(2, 40), random.randint(2, 9)
    kind = random.randint(0, 4)
    if kind == 0:
        question = f"{a} has {x} {things} and {b} gives {a} {y} more. How many {things} does {a} have now?"
        solution = f"{a} starts with {x} {things}.\n{b} gives {y} more, so {a} has {x} + {y} = {x + y} {things}."
        answer = x + y
    elif kind == 1:
        question = (
            f"{a} buys {z} boxes of {things}. Each box holds {y} {things}. {a} loses {z} of them. "
            f"How many {things} are left?"
        )
        solution = (
            f"The boxes hold {z} * {y} = {z * y} {things}.\n"
            f"After losing {z}, there are {z * y} - {z} = {z * y - z} {things} left."
        )
        answer = z * y - z
    elif kind == 2:
        question = (
            f"There are {x * z} {things} shared equally among {z} children. How many {things} does each child get?"
        )
        solution = f"Each child gets {x * z} / {z} = {x} {things}."
        answer = x
    elif kind == 3:
        question = (
            f"{a} saves {x} dollars every week for {z} weeks and then spends {y} dollars. "
            f"How many dollars does {a} have?"
        )
        solution = f"{a} saves {x} * {z} = {x * z} dollars.\nThen {a} has {x * z} - {y} = {x * z - y} dollars."
        answer = x * z - y
    else:
        question = f"{a} has {x} {things}. {b} has {z} times as many. How many {things} do they have together?"
        solution = (
            f"{b} has {x} * {z} = {x * z} {things}.\nTogether they have {x} + {x * z} = {x + x * z} {things}."
        )
        answer = x + x * z
    return f"Question: {question}\nAnswer: {solution}\n#### {answer}\n"


def make_question_documents(gsm8k, generated):
    """GSM8K three times and generated problems, shuffled, eight to a document."""
    questions = [format_gsm8k(entry) for entry in gsm8k] * 3 + [make_problem() for _ in range(generated)]
    random.shuffle(questions)
    return ["\n".join(questions[first : first + 8]) for first in range(0, len(questions), 8)]
