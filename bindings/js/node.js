// In Node: images in files.

import { closeSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { Image, sourceOf } from "./image.js";

export { ExtantError, Image } from "./image.js";
export { Dirent, Stats } from "./stats.js";

let module;

/** Opens an image: the path of a file, its descriptor, bytes, or an object with `size` and `read`. */
export async function open(from, options) {
  return opened(isFile(from) ? sourceOfFile(from) : await sourceOf(from), options);
}

function isFile(from) {
  return typeof from === "string" || typeof from === "number" || from instanceof URL;
}

function opened(source, options) {
  module ??= new WebAssembly.Module(readFileSync(new URL("./extant.wasm", import.meta.url)));
  try {
    return new Image(module, source, options);
  } catch (e) {
    source.close?.();
    throw e;
  }
}

/** The source of a file. */
function sourceOfFile(from) {
  const isOurs = typeof from !== "number";
  const file = isOurs ? openSync(from, "r") : from;
  return {
    size: fstatSync(file).size,
    read(offset, length) {
      const bytes = Buffer.allocUnsafe(length);
      let at = 0;
      while (at < length) {
        const count = readSync(file, bytes, at, length - at, offset + at);
        if (count === 0) break;
        at += count;
      }
      return bytes.subarray(0, at);
    },
    close() {
      if (isOurs) closeSync(file);
    },
  };
}
