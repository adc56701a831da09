"""Scores two tasks by lm_eval with its backend for completions of OpenAI's API and with that of transformers.

usage: harness.py URL DIRECTORY TEXT OUT
"""
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

url, directory, text, out = sys.argv[1:]
questions = [
    ("The capital of France is", [" Paris", " London", " a small fish"]),
    ("Two and two is", [" four", " seventeen thousand", " Tuesday"]),
    ("The opposite of hot is", [" cold", " warm and sunny", " table"]),
    ("Water freezes at", [" zero degrees Celsius", " noon", " the opera in Vienna"]),
]
with tempfile.TemporaryDirectory() as work:
    def task(name, rows, **config):
        data = os.path.join(work, name + ".jsonl")
        with open(data, "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        return {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": data}}, "test_split": "test", **config}

    tasks = [
        task("choices", [{"q": q, "c": c} for q, c in questions], output_type="multiple_choice", doc_to_text="{{q}}", doc_to_choice="{{c}}",
             doc_to_target=0, target_delimiter="", metric_list=[{"metric": "acc"}]),
        task("words", [{"text": open(text).read()[:1000]}], output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
             metric_list=[{"metric": "bits_per_byte"}]),
    ]
    common = {"batch_size": 3, "max_length": 512}
    backends = {
        "transformers": lambda: HFLM(pretrained=directory, dtype="float32", device="cpu", **common),
        "completions": lambda: LocalCompletionsAPI(base_url=url + "/completions", model="smollm2", tokenizer_backend="huggingface", tokenizer=directory, **common),
    }
    result = {}
    for name, backend in backends.items():
        r = lm_eval.simple_evaluate(model=backend(), tasks=tasks, task_manager=TaskManager(include_defaults=False), log_samples=True, bootstrap_iters=0, verbosity="ERROR")
        result[name] = {
            "choices": [response for sample in r["samples"]["choices"] for response in sample["resps"]],
            "accuracy": r["results"]["choices"]["acc,none"],
            "bits_per_byte": r["results"]["words"]["bits_per_byte,none"],
        }
        print(name, json.dumps(result[name]), file=sys.stderr)
json.dump(result, open(out, "w"), default=float)
