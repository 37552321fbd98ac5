// The menu of every panel: copy as curl, save as CSV or PNG, show a table.

import { curl } from "./api.js";
import { announce, byId, h } from "./dom.js";
import { menu } from "./popup.js";

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
  } catch {
    prompt("Copy this:", text);
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

const xml = (node) => new XMLSerializer().serializeToString(node);
const NOT_XML = /[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g;

/** A part of the page as it looks, drawn by way of an SVG image, which can hold HTML. */
async function pictureOf(element) {
  const root = getComputedStyle(document.documentElement);
  const { width, height } = element.getBoundingClientRect();
  const copy = element.cloneNode(true);
  const charts = element.querySelectorAll("canvas");
  copy.querySelectorAll("canvas").forEach((c, i) => c.replaceWith(h("img", { src: charts[i].toDataURL(), width: charts[i].clientWidth })));
  copy.querySelectorAll(".share, .data").forEach((node) => node.remove());
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText).join("\n");
  const image = h("img", { src: `data:image/svg+xml,${encodeURIComponent(
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" data-theme="${root.colorScheme}" style="font-size: ${root.fontSize}">
    <foreignObject width="100%" height="100%" color="${root.getPropertyValue("--text")}">${xml(h("style", {}, rules))}${xml(copy)}</foreignObject></svg>`
      .replace(NOT_XML, "\ufffd").toWellFormed())}` });
  await image.decode();
  const canvas = h("canvas", { width: width * devicePixelRatio, height: height * devicePixelRatio });
  const pen = canvas.getContext("2d");
  pen.fillStyle = root.getPropertyValue("--ground");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve));
}

/**
 * The menu of a panel or a view. `request` returns {path, parameters}; `rows` returns the header and rows of the CSV; `table` is a dataTable of
 * the panel, `more` has further items.
 */
export function share({ name, request, rows, table, more = [] }) {
  const picture = (event) => pictureOf(event.target.closest(".panel") ?? byId("view"))
    .then((blob) => save(`${name}.png`, blob), () => alert("This browser cannot save this view as an image."));
  return h("span", { class: "share" }, menu(`Menu: ${name}`, () => [
    ["Copy as curl", () => copy(curl(request().path, request().parameters))],
    ["Save as CSV", () => save(`${name}.csv`, new Blob([csv(rows())], { type: "text/csv" }))],
    ["Save as PNG", picture],
    ...more,
    ...(table ? [[table.isOpen() ? "Hide the table" : "Show the table", table.toggle]] : []),
  ]));
}
