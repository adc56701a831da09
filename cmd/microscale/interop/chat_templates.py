"""Renders chat templates with Jinja2, set up as transformers does.

arguments: folder of *.jinja files or list of templates (JSON), file of conversations (JSON), file for the results (JSON)
"""
import datetime
import json
import sys
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Generation(Extension):
    """{% generation %} of transformers, which marks the text of the model."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime.datetime.now().strftime(f)

source = Path(sys.argv[1])
if source.is_dir():
    templates = {file.name: file.read_text() for file in source.glob("*.jinja")}
else:
    templates = dict(enumerate(json.loads(source.read_text())))
conversations = json.loads(Path(sys.argv[2]).read_text())
results = {}
for key, text in templates.items():
    rendered = []
    for messages in conversations:
        try:
            template = env.from_string(text)
            rendered.append(template.render(messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>", tools=None, documents=None))
        except Exception as e:  # the template rejects the conversation
            rendered.append(None)
    results[key] = rendered
Path(sys.argv[3]).write_text(json.dumps(results))
