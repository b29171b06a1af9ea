// What the tests stand on: the native command, which makes images and says what is in them.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";

/** The native command. */
export const command = process.env.EXTANT_COMMAND;
if (!command) {
  throw new Error("EXTANT_COMMAND names the extant command that the package is compared with");
}

/** A folder that goes with the tests. */
export function folder() {
  const path = mkdtempSync(join(tmpdir(), "extant-js-"));
  after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const environment = { ...process.env, SOURCE_DATE_EPOCH: "1700000000" };

/** What the native command writes. */
export function extant(...args) {
  return execFileSync(command, args, { maxBuffer: 1 << 30, env: environment });
}

/** How the native command ends, and the JSON of its lines. */
export function verdict(...args) {
  const { status, stdout } = spawnSync(command, args, { maxBuffer: 1 << 30, env: environment });
  return { status, lines: lines(stdout) };
}

/** JSON that stands in lines. */
export function lines(bytes) {
  return bytes.toString().split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
}

/** Numbers by chance, the same ones every time. */
export function chance(seed) {
  let state = BigInt(seed) * 2n + 1n;
  return (below) => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number((state >> 33n) % BigInt(below));
  };
}
