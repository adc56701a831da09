// The test's part of the page: it uses the page as a visitor does, and sends what it saw to the test.
addEventListener("DOMContentLoaded", async () => {
  const errors = [];
  addEventListener("error", (e) => errors.push(e.message));
  addEventListener("unhandledrejection", (e) => errors.push(String(e.reason)));
  const until = async (what, condition) => {
    for (const start = performance.now(); !condition(); await new Promise((r) => setTimeout(r, 10))) {
      if (performance.now() - start > patience) throw new Error("waited for " + what + ": " + $("state").textContent);
    }
  };
  const set = (id, value) => {
    $(id).value = value;
    $(id).dispatchEvent(new Event("input", { bubbles: true }));
    $(id).dispatchEvent(new Event("change", { bubbles: true }));
  };
  // ask changes a field, and returns what the page shows then.
  const ask = async (id, value) => {
    $("line").textContent = $("error").textContent = "";
    set(id, value);
    await until(value, () => $("line").textContent || $("error").textContent);
    return {
      format: $("format").value, profile: $("profile").value, rule: $("rule").disabled ? "" : $("rule").value, values: $("values").value,
      amax: $("amax").disabled ? "" : $("amax").value, line: $("line").textContent, text: $("text").textContent, error: $("error").textContent,
      pictures: document.querySelectorAll("#pictures svg").length,
      elements: document.querySelectorAll("#pictures .element").length,
      codes: document.querySelectorAll("#pictures .code").length,
      clipped: [...document.querySelectorAll("#pictures text")].filter((t) => t.getBoundingClientRect().left <
        t.closest("svg").getBoundingClientRect().left - 0.5).map((t) => t.textContent),
      grid: document.querySelectorAll("#pictures .grid").length,
    };
  };
  // give chooses files, {name: base64}.
  const give = (id, given) => {
    const transfer = new DataTransfer();
    for (const [name, text] of Object.entries(given)) transfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
    $(id).files = transfer.files;
    $(id).dispatchEvent(new Event("change", { bubbles: true }));
  };
  // read reads a checkpoint, and returns what the page shows.
  const read = async ({ files, original, identify, weight, block }) => {
    const shown = (command) => document.querySelector(`#results [data-command=${command}]`);
    give("files", files);
    await until("the findings", () => shown("lint") && !$("busy").textContent);
    if (identify) {
      give("original", original ?? {});
      $("identify").click();
      await until("the verdicts", () => shown("identify") && !$("busy").textContent);
    }
    if (block) {
      if (weight) set("weight", weight);
      set("block", block);
      $("explain-block").click();
      await until("the block", () => shown("block") && !$("busy").textContent);
    }
    return [...document.querySelectorAll("#results [data-command]")].map((e) => ({
      command: e.dataset.command, line: e.dataset.line, text: e.className === "error" ? "" : e.textContent,
      error: e.className === "error" ? e.textContent : "",
      elements: e.parentElement.querySelectorAll(".element").length, codes: e.parentElement.querySelectorAll(".code").length,
      bars: e.parentElement.querySelectorAll(".element rect").length,
    }));
  };
  const report = { answers: [], checkpoints: [] };
  try {
    await until("the page", () => $("line").textContent);
    report.loaded = Math.round(performance.now());
    for (const f of choices.formats) report.answers.push(await ask("format", f.name));
    for (const [id, value] of plan) report.answers.push(await ask(id, value));
    for (const step of checkpoints) report.checkpoints.push(await read(step));
    if (checkpoints.length) {
      give("files", checkpoints[0].files);
      $("stop").click();
      await until("the end", () => !$("busy").textContent);
      report.stopped = [...document.querySelectorAll("#results [data-command]")].map((e) => e.textContent);
    }
    if (checkpoints.length) {
      // Other files, or none, that are chosen during an answer end it.
      const state = () => `${$("busy").textContent}, identify ${!$("identify").disabled}, stop ${!$("stop").disabled}`;
      give("files", checkpoints[0].files);
      await until("the button", () => !$("identify").disabled);
      $("identify").click();
      give("files", checkpoints[0].files);
      await new Promise((r) => setTimeout(r));
      report.replaced = state();
      give("files", {});
      await new Promise((r) => setTimeout(r));
      report.none = state();
      report.unstarted = "no answer";
      new Program({}).ask({ command: "choices" }).then(({ error }) => { report.unstarted = error; });
      await until("the end of what is no program", () => report.unstarted !== "no answer");
    }
    report.controls = [...document.querySelectorAll("select, input, textarea, button, pre")].map((e) => e.id + ":" + e.tabIndex);
    report.unnamed = [...document.querySelectorAll("select, input, textarea, button, pre, svg")]
      .filter((e) => !(e.labels?.length || e.getAttribute("aria-label") || e.textContent.trim())).map((e) => e.outerHTML.slice(0, 80));
    report.background = getComputedStyle(document.body).backgroundColor;
    report.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    report.width = document.documentElement.clientWidth;
    report.requests = performance.getEntriesByType("resource").map((r) => r.name).filter((n) => !n.startsWith(server) && !n.startsWith("data:") && !n.startsWith("blob:"));
  } catch (e) {
    errors.push(String(e));
  }
  report.errors = errors;
  await fetch(server, { method: "POST", mode: "no-cors", body: JSON.stringify(report) });
});
