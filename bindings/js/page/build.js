// Makes the page: one file with everything in it, which works from a disk.
//
//     node page/build.js OUTPUT

import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const read = (name) => readFileSync(new URL(name, import.meta.url));
const text = (name) => read(name).toString();

/** Modules as one script: what they import is in front of them. */
function joined(names) {
  const plain = (source) =>
    source.replace(/^import [^;]*;\n/gm, "").replace(/^export \{[^}]*\}[^;]*;\n/gm, "").replace(/^export /gm, "");
  return `"use strict";\n${names.map((name) => plain(text(name))).join("\n")}`;
}

/** Text in a script of a page, where `</script` would end it. */
const inScript = (source) => source.replaceAll("</", "<\\/").replaceAll("<!--", "<\\!--");

const parts = {
  "@STYLE@": text("style.css"),
  "@WASM@": gzipSync(read("../extant.wasm"), { level: 9 }).toString("base64"),
  "@WORKER@": inScript(JSON.stringify(joined(["../names.js", "../stats.js", "../image.js", "worker.js"]))),
  "@SCRIPT@": text("page.js"),
};
let page = text("index.html");
for (const [mark, part] of Object.entries(parts)) {
  const [before, after, ...more] = page.split(mark);
  if (after === undefined || more.length > 0) throw new Error(`${mark} is not in the page once`);
  page = before + part + after;
}
writeFileSync(process.argv[2], page);
