"""What transformers reads from a directory about text, for smollm2_directory_test.go:
python auto_tokenizer.py DIRECTORY TEXT RESULT

The JSON file RESULT has the ids of the file TEXT, those of a question in the chat template, and the ids that
end an answer.
"""

import json
import sys

from transformers import AutoTokenizer, GenerationConfig

directory, text, result = sys.argv[1], open(sys.argv[2], encoding="utf-8").read(), sys.argv[3]
tokenizer = AutoTokenizer.from_pretrained(directory)
chat = tokenizer.apply_chat_template([{"role": "user", "content": "Why is the sky blue?"}], add_generation_prompt=True, tokenize=False)
json.dump({
    "class": type(tokenizer).__name__,
    "text": tokenizer(text).input_ids,
    "chat": tokenizer(chat, add_special_tokens=False).input_ids,
    "special": [tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token],
    "end": GenerationConfig.from_pretrained(directory).eos_token_id,
}, open(result, "w"))
