// What every panel offers: copy as curl, CSV and PNG.

import { curl } from "./api.js";
import { announce, h } from "./dom.js";

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
  } catch {
    prompt("Copy this command:", text);
  }
}

function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

const CSV_RISKS = /^[=+\-@]/;

/** Spreadsheets run texts that begin with =, +, - or @. */
function cell(value) {
  const text = typeof value === "string" && CSV_RISKS.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n");

/** The chart on the ground of the page, which the canvas does not have. */
function onGround(canvas) {
  const copy = h("canvas", { width: canvas.width, height: canvas.height });
  const pen = copy.getContext("2d");
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel");
  pen.fillRect(0, 0, copy.width, copy.height);
  pen.drawImage(canvas, 0, 0);
  return copy;
}

/**
 * Buttons for a panel. `request` returns {path, parameters}; `rows` returns the header and rows of the CSV;
 * `canvas` returns the chart's canvas, or is missing.
 */
export function share({ name, request, rows, canvas }) {
  const button = (text, title, onclick) => h("button", { type: "button", class: "quiet", title, onclick }, text);
  return h("span", { class: "share" },
    button("curl", "Copy the request as a curl command", () => copy(curl(request().path, request().parameters))),
    button("CSV", "Save the rows", () => save(`${name}.csv`, new Blob([csv(rows())], { type: "text/csv" }))),
    canvas && button("PNG", "Save the chart as an image", () => canvas() && onGround(canvas()).toBlob((blob) => save(`${name}.png`, blob))));
}

