// Builds the page's files into a directory: node build.mjs DIRECTORY

import { build } from "esbuild";
import fs from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { worldMap } from "./map.mjs";

const out = process.argv[2];
const common = { bundle: true, minify: true, target: "es2022", legalComments: "inline", logLevel: "warning", outdir: out };

const { metafile } = await build({ ...common, entryPoints: { app: "src/main.js" }, format: "esm", splitting: true, chunkNames: "part-[name]-[hash]",
  inject: ["src/first.js"],
  metafile: true });
await build({ ...common, entryPoints: { app: "style.css" } });

// The browser asks for the parts of app.js at once, not only when it has read app.js.
const app = Object.entries(metafile.outputs).find(([name]) => path.basename(name) === "app.js")[1];
const parts = app.imports.filter(({ kind }) => kind === "import-statement").map((part) => path.basename(part.path));
const preloads = parts.map((name) => `  <link rel="modulepreload" href="${name}">\n`).join("");
fs.writeFileSync(path.join(out, "index.html"), fs.readFileSync("index.html", "utf8").replace("</head>", `${preloads}</head>`));
fs.copyFileSync("icon.svg", path.join(out, "icon.svg"));
fs.writeFileSync(path.join(out, "map.json"), JSON.stringify(worldMap()));

for (const name of fs.readdirSync(out)) {
  const file = path.join(out, name);
  fs.writeFileSync(`${file}.gz`, gzipSync(fs.readFileSync(file), { level: 9 }));
}
