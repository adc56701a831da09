// The test's part of the page: it uses the page as a visitor does, and sends what it saw to the test.
addEventListener("DOMContentLoaded", async () => {
  const errors = [];
  addEventListener("error", (e) => errors.push(e.message));
  addEventListener("unhandledrejection", (e) => errors.push(String(e.reason)));
  const until = async (what, condition) => {
    for (const start = performance.now(); !condition(); await new Promise((r) => setTimeout(r, 10))) {
      if (performance.now() - start > 60000) throw new Error("waited for " + what + ": " + $("state").textContent);
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
      grid: document.querySelectorAll("#pictures .grid").length,
    };
  };
  const report = { answers: [], files: [] };
  try {
    await until("the page", () => $("line").textContent);
    report.loaded = Math.round(performance.now());
    for (const f of choices.formats) report.answers.push(await ask("format", f.name));
    for (const [id, value] of JSON.parse(plan)) report.answers.push(await ask(id, value));
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
