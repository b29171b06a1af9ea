// In browsers: images that are blobs, in a worker, and bytes.

import { Image, sourceOf } from "./image.js";

export { ExtantError, Image } from "./image.js";
export { Dirent, Stats } from "./stats.js";

let module;

/** Opens an image: a `Blob` such as a `File`, bytes, or an object with `size` and `read`. */
export async function open(from, options) {
  const source = await sourceOf(from);
  module ??= compile();
  return new Image(await module, source, options);
}

async function compile() {
  const response = await fetch(new URL("./extant.wasm", import.meta.url));
  if (!response.ok) throw new Error(`extant.wasm cannot be fetched: ${response.status}`);
  return WebAssembly.compile(await response.arrayBuffer());
}
