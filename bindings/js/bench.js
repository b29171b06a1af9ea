// How fast listing is, beside the native command in the same run.
//
//     EXTANT_COMMAND=extant node bench.js
//
// A directory of 100,000 names, and the same image, in the page cache. Both look at the inode of each
// file. The native command is a whole process, with its start and what it writes to /dev/null; the
// package is in this process, with opening the image, and makes an object of each file. Medians of
// nine, in turn.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open } from "./node.js";

const NAMES = 100_000;
const command = process.env.EXTANT_COMMAND ?? "extant";
const place = mkdtempSync(join(tmpdir(), "extant-js-"));
const image = join(place, "disk.img");

/** Medians of the milliseconds that two things take, done in turn. */
async function medians(one, other) {
  const times = [[], []];
  for (let time = 0; time < 9; time += 1) {
    for (const [at, act] of [one, other].entries()) {
      const begun = performance.now();
      await act();
      times[at].push(performance.now() - begun);
    }
  }
  return times.map((times) => times.sort((one, other) => one - other)[4]);
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
    ["`ls` beside `list`", native("ls", `${image}:/many`), wasm((opened) => opened.list("/many").entries.length)],
    ["`ls -R --json` beside `walk`", native("ls", "-R", "--json", image), wasm((opened) => [...opened.walk("/")].length)],
  ];
  for (const [what, ofNative, ofWasm] of rows) {
    const [one, other] = await medians(ofNative, ofWasm);
    const ratio = (one / other).toFixed(2);
    console.log(`${what}: native ${one.toFixed(0)} ms, wasm ${other.toFixed(0)} ms, ${ratio} of native`);
  }
} finally {
  rmSync(place, { recursive: true, force: true });
}
