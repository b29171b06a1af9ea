// The page in Chromium, from a file, by the keyboard alone.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { Page, find } from "./chromium.js";
import { extant, folder, verdict } from "./ground.js";

const program = find();
const html = process.env.EXTANT_PAGE;
const why = !program && "SKIPPED: the page: there is no Chromium";
if (why) console.log(why);
if (program && !html) throw new Error("EXTANT_PAGE names the page, which page/build.js makes");
const options = { skip: why };

const place = folder();
const disk = join(place, "disk.img");
const damaged = join(place, "damaged.img");
const packed = join(place, "disk.img.gz");
const large = join(place, "large.img");
let page;

const status = `document.getElementById("status").textContent`;
const focused = `document.activeElement.textContent`;
const shows = (id) => `!document.getElementById("${id}").hidden`;

before(async () => {
  if (why) return;
  const tree = join(place, "tree");
  mkdirSync(join(tree, "etc/deep"), { recursive: true });
  writeFileSync(join(tree, "etc/hostname"), "box\nsecond <b>line</b>\n");
  writeFileSync(join(tree, "etc/deep/inside"), "found");
  writeFileSync(join(tree, "binary"), Buffer.alloc(70_000, 0x80));
  writeFileSync(Buffer.concat([Buffer.from(`${tree}/evil\u202ename`), Buffer.from([0xff])]), "x");
  symlinkSync("etc", join(tree, "link"));
  for (let number = 0; number < 700; number += 1) writeFileSync(join(tree, `etc/deep/file ${number}`), "");
  extant("mkfs", disk, "--from", tree, "--size", "auto");
  const bytes = readFileSync(disk);
  writeFileSync(packed, gzipSync(bytes));
  extant("mkfs", large, "--from", tree, "--size", "4G");
  // Blocks that are free and marked as used, in the first bitmap.
  const { block_size: size, runs } = JSON.parse(extant("map", "--json", disk));
  bytes[runs.find(({ kind }) => kind === "bitmap").start * size + 200] ^= 0x3f;
  writeFileSync(damaged, bytes);
  page = await Page.open(program, pathToFileURL(html).href);
  await page.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: place });
  await page.until(`!document.getElementById("file").disabled`);
});

after(() => page?.close());

/** Opens an image and waits for its root. */
async function open(path) {
  await page.value(`say("")`);
  await page.choose(path);
  await page.until(`${status}.includes("files in /")`, 60);
}

/** The names that are shown. */
const names = () => page.value(`[...document.querySelectorAll("#rows th button")].map((b) => b.textContent)`);

/** Presses Tab until what has the focus has this text. */
async function tabTo(text, most = 40) {
  for (let count = 0; count < most; count += 1) {
    if ((await page.value(focused)).trim() === text) return;
    await page.press("Tab");
  }
  throw new Error(`Tab does not reach ${text}`);
}

test("directories and files are reached by keys alone", options, async () => {
  await open(disk);
  const expected = ["binary", "etc", "evil\\u{202e}name\\xff", "link", "lost+found"];
  assert.deepEqual(await names(), expected);
  await tabTo("binary");
  await page.press("ArrowDown");
  assert.equal(await page.value(focused), "etc");
  await page.press("Enter");
  await page.until(`${status} === "2 files in /etc"`);
  assert.equal(await page.value(focused), "Files");
  await tabTo("deep");
  await page.press("End");
  assert.equal(await page.value(focused), "hostname");
  await page.press("Enter");
  await page.until(shows("preview"));
  assert.equal(await page.value(`document.getElementById("content").textContent`), "box\nsecond <b>line</b>\n");
  assert.equal(await page.value(focused), "hostname");
  await page.value(`document.querySelector("#rows button").focus()`);
  await page.press("Backspace");
  await page.until(`${status} === "5 files in /"`);
  await tabTo("link");
  await page.press("Enter");
  await page.until(`${status} === "2 files in /link"`);
});

test("large directories are shown in parts", options, async () => {
  await open(disk);
  await page.value(`go("/etc/deep", true)`);
  await page.until(`${status} === "701 files in /etc/deep"`);
  assert.equal((await names()).length, 500);
  await page.value(`document.getElementById("more").click()`);
  assert.equal((await names()).length, 701);
  assert.equal(await page.value(`document.getElementById("more").hidden`), true);
});

async function downloaded(name) {
  const path = join(place, name);
  for (let count = 0; count < 200 && !existsSync(path); count += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return readFileSync(path);
}

const sum = (bytes) => createHash("sha256").update(bytes).digest("hex");

test("files and archives are downloaded as they are", options, async () => {
  await open(disk);
  await page.value(`document.querySelector('[aria-label="Download binary"]').click()`);
  assert.equal(sum(await downloaded("binary")), sum(Buffer.alloc(70_000, 0x80)));
  await page.value(`document.querySelector('[aria-label="Download etc as tar"]').click()`);
  assert.equal(sum(await downloaded("etc.tar")), sum(extant("tar", `${disk}:/etc`)));
});

test("a check and a map are shown", options, async () => {
  await open(disk);
  await page.value(`document.getElementById("check").click()`);
  await page.until(shows("verdict"));
  assert.match(await page.value(status), /is clean: 0 errors/);
  await page.value(`document.getElementById("draw").click()`);
  await page.until(shows("map"));
  const label = await page.value(`document.getElementById("picture").getAttribute("aria-label")`);
  assert.match(label, /\d+ blocks for the structure, \d+ with content, \d+ free/);
  const colors = await page.value(`(() => {
    const canvas = document.getElementById("picture");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const all = new Set();
    for (let at = 0; at < data.length; at += 4) all.add(data.slice(at, at + 4).join());
    return all.size;
  })()`);
  assert.ok(colors >= 3, `${colors} colours`);
});

test("damage is told, and findings are those of the native command", options, async () => {
  const native = verdict("check", "--json", damaged);
  assert.equal(native.status, 4);
  await open(damaged);
  await page.value(`document.getElementById("check").click()`);
  await page.until(shows("verdict"));
  const codes = await page.value(`[...document.querySelectorAll("#findings tr td:nth-child(2)")].map((c) => c.textContent)`);
  assert.deepEqual(codes, native.lines.slice(0, -1).map(({ code }) => code));
  const broken = join(place, "broken.img");
  writeFileSync(broken, readFileSync(damaged).subarray(0, 3000));
  await page.choose(broken);
  await page.until(`document.getElementById("status").classList.contains("problem")`);
  writeFileSync(broken, "only text");
  await page.choose(broken);
  await page.until(`${status}.includes("no ext4 file system was found")`);
});

test("compressed images and images of 4 GiB are opened", options, async () => {
  await open(packed);
  assert.match(await page.value(`document.getElementById("about").textContent`), /^gzip, /);
  await open(large);
  assert.match(await page.value(`document.getElementById("about").textContent`), /^4\.0 GiB; /);
  await page.value(`document.getElementById("check").click()`);
  await page.until(shows("verdict"), 120);
  assert.match(await page.value(status), /is clean/);
});

test("everything that can be used has a name", options, async () => {
  await open(disk);
  await page.value(`document.getElementById("draw").click()`);
  await page.until(shows("map"));
  const { nodes } = await page.send("Accessibility.getFullAXTree");
  const used = ["button", "link", "combobox", "image", "table", "heading", "progressbar", "navigation", "region"];
  const seen = nodes.filter(({ ignored, role }) => !ignored && used.includes(role?.value));
  const nameless = seen.filter(({ name }) => !name?.value);
  assert.deepEqual(nameless.map(({ role }) => role.value), []);
  for (const role of ["button", "image", "table", "heading", "navigation"]) {
    assert.ok(seen.some((node) => node.role.value === role), role);
  }
  assert.ok(nodes.some(({ role }) => role?.value === "status"));
});

test("nothing is asked of a network, and the page has no faults", options, async () => {
  assert.deepEqual(page.requests.filter((url) => !/^(file|blob|data):/.test(url)), []);
  await assert.rejects(page.value(`fetch("https://example.org/")`));
  assert.deepEqual(page.faults.filter((text) => !text.includes("example.org")), []);
});
