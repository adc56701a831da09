"use strict";

const maxPictures = 16;

// element returns an element of SVG.
function element(name, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// short returns v with at most the given number of digits.
function short(v, digits = 4) {
  if (v === null) return "not finite";
  const small = v !== 0 && Math.abs(v) < 1e-3;
  return (small ? v.toExponential(digits - 1).replace(/\.?0*e/, "e") : String(+v.toPrecision(digits))).replaceAll("-", "−");
}

// spread returns the values whose places are a distance apart, beginning with those that are first in the list.
function spread(values, place, distance) {
  const kept = [];
  for (const v of values) {
    if (kept.every((k) => Math.abs(place(k) - place(v)) >= distance)) kept.push(v);
  }
  return kept;
}

// pictures returns a figure for each of the first blocks of the first profile that has the format.
function pictures(format, explanation, width) {
  const profile = explanation.profiles.find((p) => p.defined);
  const figures = profile.blocks.slice(0, maxPictures).map((block, i) => {
    const caption = document.createElement("figcaption");
    caption.textContent = `Block ${i + 1} of ${profile.blocks.length}, ${profile.profile}: scale ${short(block.scale)}, code ${block.scale_code}` +
      (profile.global_scale === null ? "" : `, global scale ${short(profile.global_scale)}`);
    const figure = document.createElement("figure");
    figure.append(caption, picture(format, block, block.scale * (profile.global_scale ?? 1), Math.max(260, width - 34)));
    return figure;
  });
  if (profile.blocks.length > maxPictures) {
    const note = document.createElement("p");
    note.textContent = `${profile.blocks.length - maxPictures} more blocks are in the text only.`;
    figures.push(note);
  }
  return figures;
}

// maxPictured bounds the values of a picture: more are narrower than a pixel.
const maxPictured = 1024;

// pictureOfBlock returns the key and the figure of a block of a checkpoint, which has values if the original is given; nothing for blocks
// that are too large.
function pictureOfBlock(explanation, width) {
  const format = choices.formats.find((f) => f.name === explanation.format), { values, rows, cols, writers: [file] } = explanation;
  if (!format || rows * cols > maxPictured) return [];
  const elements = file.codes.map((code, i) => ({ value: values?.[i], code, decoded: file.decoded[i], marks: [] }));
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), grid = document.createElement("div");
  caption.textContent = `Block ${explanation.block} of ${explanation.weight}, ${explanation.format}: scale ${short(file.scale)}` +
    (file.global ? `, global scale ${short(file.global)}` : "");
  figure.append(caption, picture(format, { first: rows === 1 ? explanation.col : 0, elements }, file.scale * (file.global || 1),
    Math.max(260, width - 34)));
  grid.className = "pictures";
  grid.append(figure);
  const keys = $("keys").cloneNode(true);
  keys.removeAttribute("id");
  return [keys, grid];
}

// picture draws a block: values and decoded values over the grid of the format times the scale, codes, and errors.
function picture(format, block, scale, width) {
  const left = 76, right = 6, top = 8, high = 220, codesHigh = 46, errorHigh = 64;
  const all = block.elements.flatMap((e) => [e.value, e.decoded]).filter((v) => v != null); // the others are NaN, Inf or unknown
  const places = format.grid.map((v) => v * scale), least = Math.min(0, ...all), most = Math.max(0, ...all);
  const low = places.findLast((v) => v <= least) ?? least, span = (places.find((v) => v >= most) ?? most) - low || 1;
  const y = (v) => top + high * (1 - (v - low) / span);
  const slot = (width - left - right) / block.elements.length;
  const x = (i) => left + slot * (i + 0.5);
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${top + high + codesHigh + errorHigh + 8}`, role: "img",
    "aria-label": `Values, grid, codes and errors of a block of ${block.elements.length} values`,
  });
  // The grid: its lines where they are apart, zero and the ends first.
  const outer = [0, ...places.filter((v) => v >= low && v <= low + span * (1 + 1e-6)).sort((a, b) => Math.abs(b) - Math.abs(a))];
  for (const v of spread(outer, y, 2.5)) {
    svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v), stroke: v === 0 ? "var(--axis)" : "var(--grid)" }));
  }
  for (const v of spread(outer, y, 16)) {
    svg.append(element("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, short(v, 3)));
  }
  const errorMiddle = top + high + codesHigh + errorHigh / 2;
  const errorOf = (e) => (e.value == null || e.decoded === null ? 0 : e.decoded - e.value);
  const worst = Math.max(...block.elements.map((e) => Math.abs(errorOf(e))));
  svg.append(element("line", { x1: left, x2: width - right, y1: errorMiddle, y2: errorMiddle, stroke: "var(--axis)" }),
    element("text", { x: left - 6, y: errorMiddle + 4, "text-anchor": "end" }, "error"),
    element("text", { x: left - 6, y: errorMiddle - errorHigh / 2 + 10, "text-anchor": "end" }, worst > 0 ? "±" + short(worst, 3) : "0"),
    element("text", { x: left - 6, y: top + high + 26, "text-anchor": "end" }, "code"));
  block.elements.forEach((e, i) => {
    const g = element("g", { class: "element" }, element("title", {},
      `${block.first + i}: ${e.value === undefined ? "" : short(e.value) + " → "}code ${e.code} → ${short(e.decoded)}` + (e.marks.length ? ` (${e.marks.join(", ")})` : "")));
    const wide = Math.max(1, Math.min(14, slot * 0.5));
    if (e.value != null) {
      g.append(element("rect", { x: x(i) - wide / 2, width: wide, y: Math.min(y(e.value), y(0)), height: Math.max(1, Math.abs(y(e.value) - y(0))), fill: "var(--c1)", opacity: 0.75 }));
    }
    if (e.decoded !== null) {
      g.append(element("rect", { x: x(i) - Math.max(1, slot * 0.42), width: Math.max(2, slot * 0.84), y: y(e.decoded) - 1.25, height: 2.5, fill: "var(--c2)" }));
    }
    if (slot >= 13) {
      const across = slot >= 30; // room for four digits
      g.append(element("text", {
        class: "code", "text-anchor": across ? "middle" : "start",
        transform: across ? `translate(${x(i)} ${top + high + 26})` : `translate(${x(i) + 4} ${top + high + 40}) rotate(-90)`,
      }, e.code.replace("0x", "")));
    }
    const error = errorOf(e);
    if (error !== 0) {
      const length = errorHigh / 2 * Math.abs(error) / worst;
      g.append(element("rect", { x: x(i) - wide / 2, width: wide, y: error > 0 ? errorMiddle - length : errorMiddle, height: length, fill: "var(--c5)" }));
    }
    svg.append(g);
  });
  return svg;
}
