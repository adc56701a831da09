"use strict";

// Examples are lists of values. Random numbers come of a fixed seed.
function normal(n, scale) {
  let state = 2611;
  const uniform = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0, (state + 0.5) / 2 ** 32);
  return Array.from({ length: n }, () => scale * Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}

const examples = {
  "normal values": () => normal(32, 0.02),
  "one outlier": () => normal(32, 0.02).map((v, i) => (i === 9 ? 0.8 : v)),
  "a ramp": () => Array.from({ length: 33 }, (_, i) => (i - 16) / 16 * 6),
  "powers of two": () => Array.from({ length: 16 }, (_, i) => 2 ** (4 - i)),
  "between two codes": () => [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6],
  "NaN and Inf": () => [1, -2, NaN, 0.5, Infinity, 3, 0, -0.125],
};
const textOf = (values) => values.map((v) => (Number.isFinite(v) ? String(+v.toPrecision(4)) : String(v).replace("Infinity", "inf"))).join(" ");

let module, choices, explainer, latest = 0, shown = null;

// fill sets the options of a list, and keeps its choice where that is still one.
function fill(list, options) {
  const before = list.value;
  list.replaceChildren(...options.map(([value, text, title]) => {
    const option = new Option(text, value);
    option.title = title ?? "";
    return option;
  }));
  if (options.some(([value]) => value === before)) list.value = before;
}

// offer shows what can be chosen for the format.
function offer() {
  const f = choices.formats.find((f) => f.name === $("format").value);
  const docs = new Map(choices.profiles.map((p) => [p.name, p.doc]));
  fill($("profile"), [["", "default"], ...f.profiles.map((name) => [name, name, docs.get(name)])]);
  $("profile").title = docs.get($("profile").value) ?? "";
  $("rule").disabled = !f.rules;
  $("amax").disabled = !f.amax;
  return f;
}

async function explain() {
  const f = offer(), number = ++latest;
  const answer = await explainer.ask({
    command: "explain", values: $("values").value, format: f.name, profile: $("profile").value,
    rule: f.rules ? $("rule").value : "", amax: f.amax ? $("amax").value : "",
  });
  if (number !== latest) return;
  $("error").textContent = answer.error ?? "";
  $("answer").hidden = Boolean(answer.error);
  if (answer.error) return;
  $("text").textContent = answer.text;
  $("line").textContent = answer.line;
  shown = { format: f, explanation: answer.explanation };
  draw();
}

function draw() {
  if (!shown) return;
  const { format, explanation } = shown;
  $("keys").hidden = false;
  $("pictures").replaceChildren(...pictures(format, explanation, $("pictures").clientWidth));
}

async function open() {
  module = await compile();
  explainer = new Program(module);
  const answer = await explainer.ask({ command: "choices" });
  if (answer.error) throw new Error(answer.error);
  choices = answer.choices;
  fill($("format"), choices.formats.map((f) => [f.name, f.name, f.doc]));
  fill($("rule"), [["", "that of the profile"], ...choices.rules.map((r) => [r, r])]);
  fill($("example"), [["", "…"], ...Object.keys(examples).map((name) => [name, name])]);
  $("format").value = "nvfp4";
  $("values").value = textOf(examples["normal values"]());
  $("example").addEventListener("change", () => {
    if ($("example").value) $("values").value = textOf(examples[$("example").value]());
  });
  $("values").addEventListener("input", () => { $("example").value = ""; });
  $("question").addEventListener("submit", (e) => e.preventDefault());
  $("question").addEventListener("input", explain);
  new ResizeObserver(draw).observe($("pictures"));
  readCheckpoints();
  $("state").textContent = "";
  await explain();
}

open().catch((e) => { $("state").textContent = "This browser cannot run the page: " + e.message; });
