// The worker of the page runs the program. It answers {id, request} with {id, answer}, and first of all gets {module, runtime}.
"use strict";

const started = new Promise((resolve) => { globalThis.ready = resolve; });

onmessage = async ({ data }) => {
  if (data.module) {
    const go = new Go();
    go.run(await WebAssembly.instantiate(data.module, go.importObject)).then(() => { throw new Error("the program ended"); });
    return;
  }
  await started;
  ask(data.request, (answer) => postMessage({ id: data.id, answer }));
};
