// How fast listing is, beside the native command in the same run.
//
//     EXTANT_COMMAND=extant node bench.js
//
// A directory of 100,000 names, and the same image, in the page cache. The native command is a whole
// process, with its start and what it writes to /dev/null; the package is in this process, with
// opening the image, and everything becomes objects of JavaScript. Medians of nine.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open } from "./node.js";

const NAMES = 100_000;
const command = process.env.EXTANT_COMMAND ?? "extant";
const place = mkdtempSync(join(tmpdir(), "extant-js-"));
const image = join(place, "disk.img");

async function median(act) {
  const times = [];
  for (let time = 0; time < 9; time += 1) {
    const begun = performance.now();
    await act();
    times.push(performance.now() - begun);
  }
  return times.sort((one, other) => one - other)[4];
}

const native = (...args) => () => {
  const { status } = spawnSync(command, args, { stdio: ["ignore", "ignore", "inherit"] });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${status}`);
};

const wasm = (act) => async () => {
  const opened = await open(image);
  const count = act(opened);
  if (count < NAMES) throw new Error(`${count} names`);
  opened.close();
};

try {
  const tree = join(place, "tree/many");
  mkdirSync(tree, { recursive: true });
  for (let number = 0; number < NAMES; number += 1) writeFileSync(join(tree, `name of file ${number}`), "");
  execFileSync(command, ["mkfs", image, "--from", join(place, "tree"), "--size", "auto"]);
  const rows = [
    ["names", native("ls", `${image}:/many`), wasm((opened) => opened.readdir("/many").length)],
    ["names with all that is known", native("ls", "-R", "--json", image), wasm((opened) => [...opened.walk("/")].length)],
  ];
  for (const [what, ofNative, ofWasm] of rows) {
    const [one, other] = [await median(ofNative), await median(ofWasm)];
    const ratio = (one / other).toFixed(2);
    console.log(`${what}: native ${one.toFixed(0)} ms, wasm ${other.toFixed(0)} ms, ${ratio} of native`);
  }
} finally {
  rmSync(place, { recursive: true, force: true });
}
