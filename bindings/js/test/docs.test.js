// What the documents show is run, each block as a module beside an image.

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { extant, folder } from "./ground.js";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const place = folder();
mkdirSync(join(place, "tree/etc"), { recursive: true });
writeFileSync(join(place, "tree/etc/hostname"), "box\n");
extant("mkfs", join(place, "rootfs.img"), "--from", join(place, "tree"), "--size", "16M");
// What a registry would have, and nothing beside it.
mkdirSync(join(place, "node_modules"));
execFileSync("npm", ["pack", "--silent", "--pack-destination", place], { cwd: join(root, "bindings/js") });
const { version } = JSON.parse(readFileSync(join(root, "bindings/js/package.json"), "utf8"));
execFileSync("tar", ["-xf", `extant-fs-${version}.tgz`], { cwd: place });
renameSync(join(place, "package"), join(place, "node_modules/extant-fs"));

test("the package has the version of the workspace", () => {
  const manifest = readFileSync(join(root, "Cargo.toml"), "utf8");
  if (!manifest.includes(`\nversion = "${version}"\n`)) throw new Error(`the package is ${version}`);
});
// What a block for a worker sets is called, as the worker would.
writeFileSync(
  join(place, "main.mjs"),
  `import { readFileSync } from "node:fs";
  const told = [];
  globalThis.onmessage = undefined;
  globalThis.postMessage = (message) => told.push(message);
  await import("./block.mjs");
  if (onmessage) {
    await onmessage({ data: new Blob([readFileSync("rootfs.img")]) });
    if (told.length === 0) throw new Error("nothing was told");
  }`,
);

for (const [name, least] of [["README.md", 1], ["bindings/js/README.md", 1], ["docs/user/javascript.md", 3]]) {
  test(`what ${name} shows runs`, () => {
    const text = readFileSync(join(root, name), "utf8");
    const blocks = [...text.matchAll(/^```js\n(.*?)^```$/gms)].map(([, block]) => block);
    if (blocks.length < least) throw new Error(`${blocks.length} blocks`);
    for (const block of blocks) {
      writeFileSync(join(place, "block.mjs"), block);
      execFileSync(process.execPath, ["main.mjs"], { cwd: place, stdio: ["ignore", "pipe", "pipe"] });
    }
  });
}
