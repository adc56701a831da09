"""Use a server of this module with the official client of OpenAI's API: URL, output file."""

import asyncio
import json
import sys

import openai

url, out = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
result = {"models": [m.id for m in client.models.list()], "retrieved": client.models.retrieve("tiny").id}

messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
common = {"model": "tiny", "max_tokens": 20, "seed": 7, "temperature": 0.1}
chat = client.chat.completions.create(messages=messages, **common)
result["chat"] = chat.choices[0].message.content
result["finish"] = chat.choices[0].finish_reason
result["tokens"] = chat.usage.completion_tokens
parts, tokens = [], 0
for chunk in client.chat.completions.create(messages=messages, stream=True, stream_options={"include_usage": True}, **common):
    if chunk.usage is not None:
        tokens = chunk.usage.completion_tokens
    parts += [c.delta.content or "" for c in chunk.choices]
result["streamed"], result["streamed_tokens"], result["parts"] = "".join(parts), tokens, len(parts)

result["text"] = client.completions.create(prompt="Hi", **common).choices[0].text
result["text_streamed"] = "".join(c.choices[0].text for c in client.completions.create(prompt="Hi", stream=True, **common))

for name, call in {
    "bad": lambda: client.chat.completions.create(messages=[], **common),
    "long": lambda: client.completions.create(prompt="x" * 1000, **common),
    "tools": lambda: client.chat.completions.create(messages=messages, tools=[{"type": "function", "function": {"name": "f"}}], **common),
    "model": lambda: client.models.retrieve("other"),
    "chat_model": lambda: client.chat.completions.create(messages=messages, model="other"),
    "logit_bias": lambda: client.chat.completions.create(messages=messages, logit_bias={"5": 1}, **common),
    "format": lambda: client.chat.completions.create(messages=messages, response_format={"type": "json_object"}, **common),
    "several": lambda: client.completions.create(prompt="Hi", n=2, **common),
}.items():
    try:
        call()
    except openai.APIStatusError as e:
        result[name] = [type(e).__name__, e.status_code, e.body["message"]]

asked = client.chat.completions.create(
    messages=messages, user="me", metadata={"a": "b"}, store=False, service_tier="auto", parallel_tool_calls=True, n=1, presence_penalty=0.0,
    response_format={"type": "text"}, stop=None, model="tiny", max_completion_tokens=20, seed=7, temperature=0.1)
result["harmless"] = asked.choices[0].message.content


async def many():
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=10) as a:
        answers = await asyncio.gather(*(a.completions.create(prompt="Hi", **common) for _ in range(40)))
        return [x.choices[0].text for x in answers]


result["many"] = asyncio.run(many())
with open(out, "w", encoding="utf-8") as f:
    json.dump(result, f)
