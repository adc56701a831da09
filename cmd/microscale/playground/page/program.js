"use strict";

const $ = (id) => document.getElementById(id);

// A Program is a worker that runs the module.
class Program {
  constructor(module) {
    this.module = module;
    this.waiting = new Map(); // by id of the request
    this.last = 0;
  }

  start() {
    const address = URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" }));
    this.worker = new Worker(address);
    URL.revokeObjectURL(address);
    this.worker.onmessage = ({ data }) => {
      if (data.ended !== undefined) {
        this.stop("the program ended: " + data.ended);
        return;
      }
      this.waiting.get(data.id)(JSON.parse(data.answer));
      this.waiting.delete(data.id);
    };
    this.worker.onerror = (e) => {
      e.preventDefault();
      this.stop("the program ended: " + e.message);
    };
    this.worker.postMessage({ module: this.module });
  }

  // ask returns the answer to a request, whose files the program may read.
  ask(request, files) {
    if (!this.worker) this.start();
    const id = ++this.last;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.worker.postMessage({ id, request: JSON.stringify(request), files });
    });
  }

  // stop ends the worker, and answers what it was asked with an error.
  stop(error) {
    this.worker?.terminate();
    this.worker = null;
    for (const resolve of this.waiting.values()) resolve({ error });
    this.waiting.clear();
  }
}

// compile returns the module of the page.
async function compile() {
  const packed = Uint8Array.from(atob($("program").textContent), (c) => c.charCodeAt(0));
  $("program").remove();
  const bytes = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compile(await new Response(bytes).arrayBuffer());
}
