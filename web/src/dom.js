// Builds elements. Text always becomes a text node, so a key with markup is shown as text.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

const ANNOUNCED = 3000; // ms
let announced;

/** Shows a short text for a moment, and announces it to screen readers. */
export function announce(text) {
  clearTimeout(announced);
  byId("announce").textContent = text;
  announced = setTimeout(() => byId("announce").replaceChildren(), ANNOUNCED);
}

/** A select with [value, text] pairs. A value that the URL has from elsewhere is chosen too. */
export function select(label, name, pairs, chosen, onchange = () => {}) {
  const isOffered = pairs.some(([value]) => value === (chosen ?? value));
  const options = (isOffered ? pairs : [[chosen], ...pairs]).map(([value, text]) => h("option", { value, selected: value === chosen }, text ?? value));
  return h("label", {}, h("span", {}, label), h("select", { name, onchange: (e) => onchange(e.target.value) }, options));
}
