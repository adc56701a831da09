"use strict";

const stopped = "stopped";

// within returns pairs of a path in the directory dir and a file.
const within = (dir, list) => list.map((file) => [`${dir}/${file.name}`, file]);

// sourceOf returns the path that the program opens: a GGUF file, a file alone, or the directory.
function sourceOf(pairs) {
  const gguf = pairs.map(([path]) => path).filter((path) => path.endsWith(".gguf")).sort();
  if (gguf.length) return gguf[0];
  return pairs.length === 1 ? pairs[0][0] : pairs[0][0].split("/")[0];
}

// dropped returns the files of a drop, and those at the top of dropped directories.
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean), found = [];
  const fileOf = (entry) => new Promise((resolve, reject) => entry.file(resolve, reject));
  for (const entry of entries) {
    if (entry.isFile) {
      found.push(await fileOf(entry));
      continue;
    }
    const reader = entry.createReader();
    for (let batch; (batch = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))).length;) {
      for (const inner of batch.filter((e) => e.isFile)) found.push(await fileOf(inner));
    }
  }
  return found;
}

// suggest offers the names of weights, and chooses the first.
function suggest(names) {
  $("weights").replaceChildren(...names.map((name) => new Option(name, name)));
  $("weight").value = names[0] ?? "";
  $("block").value = "0";
}

// readCheckpoints makes the section about checkpoints work.
function readCheckpoints() {
  let reader, checkpoint = [], reading = 0;

  const besides = ["identify", "explain-block"]; // buttons of commands that read the original, too
  const enable = (on) => besides.forEach((id) => { $(id).disabled = !on; });

  // show adds what a command prints, and reports whether it was not stopped.
  const show = async (command, request, files, title) => {
    const mine = reading;
    $("busy").textContent = title + "…";
    $("stop").disabled = false;
    const answer = await reader.ask({ command, ...request }, files);
    if (mine !== reading) return false; // other files were chosen
    for (const old of document.querySelectorAll(`#results [data-command=${command}]`)) {
      old.parentElement.remove();
    }
    const heading = document.createElement("h3"), text = document.createElement(answer.error ? "p" : "pre");
    heading.textContent = title;
    text.textContent = answer.error || answer.text;
    if (answer.error) text.className = "error";
    else {
      text.tabIndex = 0;
      text.setAttribute("aria-label", title);
    }
    text.dataset.command = command;
    text.dataset.line = text.title = answer.line ?? "";
    const result = document.createElement("div");
    result.append(heading, text);
    $("results").append(result);
    if (command === "inspect") suggest(answer.weights ?? []);
    if (command === "block" && !answer.error) text.before(...pictureOfBlock(answer.explanation, result.clientWidth));
    $("busy").textContent = "";
    $("stop").disabled = true;
    return answer.error !== stopped;
  };

  // read reads files with a new program, which knows no others.
  const read = async (list) => {
    reading++;
    reader?.stop(stopped);
    checkpoint = [];
    $("results").replaceChildren();
    $("busy").textContent = "";
    enable(false);
    $("stop").disabled = true;
    if (!list.length) return;
    reader = new Program(module);
    checkpoint = list.length === 1 ? [[list[0].name, list[0]]] : within("checkpoint", list);
    const source = sourceOf(checkpoint);
    if (await show("inspect", { source }, checkpoint, "Weights") && await show("lint", { source }, checkpoint, "Findings")) {
      enable(true);
    }
  };

  // beside shows what a command says of the checkpoint beside its original, if that is given.
  const beside = async (command, request, title) => {
    const mine = reading, original = within("original", [...$("original").files]);
    enable(false);
    await show(command, { ...request, source: sourceOf(checkpoint), original: original.length ? sourceOf(original) : "" },
      [...checkpoint, ...original], title);
    if (mine === reading) enable(true);
  };

  $("files").addEventListener("change", () => read([...$("files").files]));
  $("identify").addEventListener("click", () => beside("identify", {}, "Who wrote it"));
  $("explain-block").addEventListener("click", () => beside("block", { weight: $("weight").value.trim(), block: $("block").value.trim() },
    "A block"));
  $("stop").addEventListener("click", () => reader.stop(stopped));
  const section = $("checkpoint");
  section.addEventListener("dragover", (e) => {
    e.preventDefault();
    section.classList.add("over");
  });
  section.addEventListener("dragleave", () => section.classList.remove("over"));
  section.addEventListener("drop", async (e) => {
    e.preventDefault();
    section.classList.remove("over");
    read(await dropped(e.dataTransfer));
  });
}
