// Images through WebAssembly, beside what the native command says of them.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync, ftruncateSync, linkSync, mkdirSync, openSync, readFileSync, readSync, statSync,
  symlinkSync, utimesSync, writeFileSync, writeSync,
} from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { ExtantError, Image, open } from "../node.js";
import { chance, extant, folder, lines, verdict } from "./ground.js";

const place = folder();
const tree = join(place, "tree");
const disk = join(place, "disk.img");

before(() => {
  mkdirSync(join(tree, "etc/deep/er"), { recursive: true });
  writeFileSync(join(tree, "etc/hostname"), "box\n");
  linkSync(join(tree, "etc/hostname"), join(tree, "name"));
  writeFileSync(join(tree, "etc/n\u00e4me \u{1f4be} \"\\"), Buffer.alloc(100_000, 7));
  writeFileSync(Buffer.concat([Buffer.from(`${tree}/caf`), Buffer.from([0xe9])]), "latin");
  writeFileSync(join(tree, "x".repeat(240)), "long");
  utimesSync(join(tree, "etc/hostname"), 1_600_000_000.25, 1_600_000_000.123456);
  utimesSync(join(tree, "x".repeat(240)), -5.5, -1.25);
  symlinkSync("../../etc/hostname", join(tree, "etc/deep/link"));
  symlinkSync("loop", join(tree, "loop"));
  symlinkSync("/etc", join(tree, "absolute"));
  const holes = openSync(join(tree, "holes"), "w");
  writeSync(holes, Buffer.alloc(5000, 9), 0, 5000, 3 << 20);
  ftruncateSync(holes, 9 << 20);
  closeSync(holes);
  writeFileSync(join(tree, "large"), Buffer.from(Uint8Array.from({ length: 9 << 20 }, (_, at) => at >> 9)));
  for (let number = 0; number < 500; number += 1) writeFileSync(join(tree, `etc/deep/er/file ${number}`), "");
  extant("mkfs", disk, "--from", tree, "--size", "auto");
});

/** A file as `extant ls --json` has it. */
function record(image, path, stats) {
  const time = (which) => {
    const found = stats.time(which);
    if (found === null) return undefined;
    const [seconds, nanos] = found;
    const text = new Date(seconds * 1000).toISOString().slice(0, 19);
    return nanos === 0 ? `${text}Z` : `${text}.${String(nanos).padStart(9, "0")}Z`;
  };
  const text = (name) => name.toWellFormed();
  const record = {
    path: text(path),
    type: stats.type,
    mode: (stats.mode & 0o7777).toString(8).padStart(4, "0"),
    uid: stats.uid,
    gid: stats.gid,
    size: stats.size,
    blocks: stats.blocks,
    links: stats.nlink,
    inode: stats.ino,
    mtime: time("mtime"),
    atime: time("atime"),
    ctime: time("ctime"),
    crtime: time("birthtime"),
    device: stats.device,
    project: stats.project || undefined,
    target: stats.isSymbolicLink() ? text(image.readlink(path)) : undefined,
  };
  return JSON.parse(JSON.stringify(record));
}

const byPath = (one, other) => (one.path < other.path ? -1 : 1);

function compareListing(image, path) {
  const native = lines(extant("ls", "-R", "--json", path));
  for (const line of native) {
    delete line.path_hex;
    delete line.target_hex;
  }
  const ours = [...image.walk("/")].map(([at, stats]) => record(image, at, stats));
  assert.deepEqual(ours.sort(byPath), native.sort(byPath));
  return ours.length;
}

function archive(image, path) {
  const hash = createHash("sha256");
  const pieces = image.tar(path);
  for (let next = pieces.next(); ; next = pieces.next()) {
    if (next.done) {
      assert.deepEqual(next.value, []);
      return hash.digest("hex");
    }
    hash.update(next.value);
  }
}

const sum = (bytes) => createHash("sha256").update(bytes).digest("hex");

test("what is listed is what the native command lists", async () => {
  const image = await open(disk);
  assert.ok(compareListing(image, disk) > 510);
  image.close();
});

test("files have the content that they were made with", async () => {
  const image = await open(disk);
  for (const name of ["etc/hostname", "name", "holes", "large", "etc/n\u00e4me \u{1f4be} \"\\"]) {
    const expected = readFileSync(join(tree, name));
    assert.equal(sum(image.readFile(`/${name}`)), sum(expected), name);
    assert.deepEqual(Buffer.from(image.read(`/${name}`, 3, 700)), expected.subarray(3, 703), name);
    assert.equal(sum(Buffer.concat([...image.chunks(`/${name}`)])), sum(expected), name);
  }
  assert.equal(image.readFile("/absolute/deep/link", "utf8"), "box\n");
  assert.equal(image.readFile("/caf\udce9", "utf8"), "latin");
  assert.equal(image.readFile(Uint8Array.of(47, 99, 97, 102, 0xe9), { encoding: "utf8" }), "latin");
  assert.ok(image.readdir("/").includes("caf\udce9"));
  const link = image.readdir("/", { withFileTypes: true }).find(({ name }) => name === "loop");
  assert.ok(link.isSymbolicLink() && link.type === "symlink");
});

test("archives have the bytes of the native command", async () => {
  const image = await open(disk);
  for (const path of ["/", "/etc", "/holes"]) {
    assert.equal(archive(image, path), sum(extant("tar", `${disk}:${path}`)), path);
  }
});

/** The verdict of the native command, and that of the package. */
async function compareCheck(path) {
  const native = verdict("check", "--json", path);
  if (native.status !== 0 && native.status !== 4) {
    await assert.rejects(open(path).then((image) => image.check()), isTold, path);
    return native.status;
  }
  const { findings, ...ours } = (await open(path)).check();
  const last = native.lines.pop();
  assert.deepEqual(ours, last, path);
  assert.deepEqual(findings, native.lines, path);
  return native.status;
}

/** Whether it is an error of ours that is no trap. */
function isTold(e) {
  return e instanceof ExtantError && e.code !== "ERR_STOPPED" && e.message !== "";
}

test("a check finds what the native command finds", async () => {
  assert.equal(await compareCheck(disk), 0);
  const random = chance(1);
  let damaged = 0;
  for (let round = 0; round < 12; round += 1) {
    const bytes = readFileSync(disk);
    // Bitmaps, descriptors, tables and directories, behind the superblock.
    for (let count = 0; count < 1 + 3 * round; count += 1) bytes[2048 + random(400_000)] ^= 1 + random(255);
    const path = join(place, "damaged.img");
    writeFileSync(path, bytes);
    try {
      await open(path);
    } catch {
      // The native command finds its way by backups that reading does not look for.
      continue;
    }
    if ((await compareCheck(path)) === 4) damaged += 1;
  }
  assert.ok(damaged > 5, `${damaged} damaged images`);
});

test("damaged and hostile images give errors and never end the engine", async () => {
  const random = chance(2);
  let opened = 0;
  const attempt = (act) => {
    try {
      return act();
    } catch (e) {
      assert.ok(isTold(e), e.stack);
      return undefined;
    }
  };
  const sound = readFileSync(disk);
  for (let round = 0; round < 60; round += 1) {
    let bytes = Uint8Array.from(sound);
    const end = [2048, 60_000, 400_000][round % 3];
    for (let count = 0; count < 1 + round; count += 1) bytes[1024 + random(end)] = random(256);
    if (round % 7 === 0) bytes = bytes.subarray(0, random(bytes.length));
    let image;
    try {
      image = await open(bytes);
    } catch (e) {
      assert.ok(isTold(e), e.stack);
      continue;
    }
    opened += 1;
    attempt(() => image.check());
    attempt(() => image.picture(100));
    attempt(() => {
      for (const [path, stats] of image.walk("/", { onProblem: (e) => assert.ok(isTold(e)) })) {
        attempt(() => stats.isSymbolicLink() && image.readlink(path));
        attempt(() => stats.isFile() && image.read(path, 0, 5000));
      }
    });
    attempt(() => [...image.tar("/")].length);
  }
  assert.ok(opened > 20, `${opened} of 60 opened`);
  for (const [bytes, code] of [
    [new Uint8Array(0), "ERR_NOT_EXT4"],
    [new Uint8Array(4096), "ERR_NOT_EXT4"],
    [new TextEncoder().encode("%PDF-1.4"), "ERR_NOT_EXT4"],
    [sound.subarray(0, 1500), undefined],
  ]) {
    await assert.rejects(open(bytes), (e) => isTold(e) && (code === undefined || e.code === code));
  }
});

test("qcow2, gzip and disks with partitions hold the same files", async () => {
  const expected = archive(await open(disk), "/");
  const qcow2 = join(place, "disk.qcow2");
  extant("convert", disk, qcow2);
  const whole = Buffer.concat([Buffer.alloc(1 << 20), readFileSync(disk)]);
  whole.set([0x83], 450);
  whole.writeUInt32LE(2048, 454);
  whole.writeUInt32LE(statSync(disk).size / 512, 458);
  whole.set([0x55, 0xaa], 510);
  const packed = Buffer.concat([gzipSync(readFileSync(qcow2)), Buffer.alloc(512)]);
  for (const [from, formats, partition] of [
    [qcow2, ["qcow2"], null],
    [gzipSync(readFileSync(disk), { level: 1 }), ["gzip"], null],
    [packed, ["gzip", "qcow2"], null],
    [whole, [], 1],
    [gzipSync(whole), ["gzip"], 1],
  ]) {
    const image = await open(from);
    assert.deepEqual(image.about.formats, formats);
    assert.equal(image.about.partition, partition);
    assert.equal(archive(image, "/"), expected, formats.join());
  }
  await assert.rejects(open(whole, { partition: 3 }), { code: "ENXIO", message: /no partition 3/ });
  await assert.rejects(open(packed.subarray(0, 5000)), { code: "EUCLEAN" });
  const told = [];
  await open(gzipSync(Buffer.alloc(64 << 20)), { onProgress: (...all) => told.push(all) }).catch(() => {});
  assert.ok(told.length > 3 && told[0][0] === "decompressing");
});

/** Has a program write something of an image. */
function make(program, ...args) {
  const { error, status, stderr } = spawnSync(program, args);
  assert.notEqual(error?.code, "ENOENT", `${program} is missing: scripts/setup.sh installs it`);
  assert.equal(status, 0, String(stderr));
}

test("VHD, VMDK, Android sparse, Zstandard and xz hold the same files", async () => {
  const expected = archive(await open(disk), "/");
  const files = {};
  for (const [name, format] of [
    ["fixed.vhd", "vhd-fixed"],
    ["dynamic.vhd", "vhd"],
    ["android.simg", "simg"],
  ]) {
    const path = join(place, name);
    extant("convert", "--format", format, disk, path);
    files[path] = [format];
  }
  for (const [name, how, options] of [
    ["qemu.vhd", "vpc", "subformat=dynamic,force_size=on"],
    ["sparse.vmdk", "vmdk", "subformat=monolithicSparse"],
    ["stream.vmdk", "vmdk", "subformat=streamOptimized"],
  ]) {
    const path = join(place, name);
    make("qemu-img", "convert", "-f", "raw", "-O", how, "-o", options, disk, path);
    files[path] = [how === "vpc" ? "vhd" : "vmdk-sparse"];
  }
  for (const [tool, extension] of [["zstd", "zst"], ["xz", "xz"]]) {
    for (const [from, inner] of [[disk, []], [join(place, "dynamic.vhd"), ["vhd"]]]) {
      make(tool, "-1", "-k", "-f", "-q", from);
      files[`${from}.${extension}`] = [tool, ...inner];
    }
  }
  for (const [path, formats] of Object.entries(files)) {
    const image = await open(path);
    assert.deepEqual(image.about.formats, formats, path);
    assert.equal(archive(image, "/"), expected, path);
    image.close();
    if (["simg", "zstd", "xz"].includes(formats[0])) {
      const whole = readFileSync(path);
      await assert.rejects(open(whole.subarray(0, whole.length / 3)), { code: "EUCLEAN" }, path);
    }
  }
  const flat = Buffer.from("# Disk DescriptorFile\nversion=1\n");
  await assert.rejects(open(flat), { code: "EOPNOTSUPP", message: /another file/ });
});

test("an image of 6 GiB is read in slices, in little memory", async () => {
  const big = join(place, "big.img");
  extant("mkfs", big, "--from", tree, "--size", "6G");
  let bytes = 0;
  let largest = 0;
  const file = openSync(big, "r");
  const source = {
    size: statSync(big).size,
    read(offset, length) {
      const piece = Buffer.alloc(length);
      bytes += length;
      largest = Math.max(largest, length);
      assert.equal(readSync(file, piece, 0, length, offset), length);
      return piece;
    },
  };
  const image = await open(source);
  assert.ok(compareListing(image, big) > 510);
  assert.ok(bytes < 64 << 20, `${bytes} bytes for a listing`);
  const { findings, ...ours } = image.check();
  assert.deepEqual([...findings, ours], verdict("check", "--json", big).lines);
  const picture = image.picture(1000);
  const free = picture.reduce((all, cell) => all + cell.free, 0);
  assert.equal(free, image.about.free);
  assert.ok(picture.length > 900 && picture.length <= 1000);
  assert.ok(largest <= 4 << 20, `${largest} bytes at once`);
  assert.ok(bytes < 512 << 20, `${bytes} bytes for all`);
  closeSync(file);
});

test("errors have the codes of Node's fs", async () => {
  const image = await open(disk);
  const code = (act, code) => assert.throws(act, (e) => isTold(e) && e.code === code, code);
  code(() => image.stat("/none"), "ENOENT");
  code(() => image.readdir("/name"), "ENOTDIR");
  code(() => image.stat("/name/"), "ENOTDIR");
  code(() => image.stat("/loop"), "ELOOP");
  code(() => image.readFile("/etc"), "EISDIR");
  code(() => image.readlink("/etc"), "EINVAL");
  code(() => image.stat(`/${"x".repeat(300)}`), "ENAMETOOLONG");
  assert.throws(() => image.stat(7), TypeError);
  assert.equal(image.exists("/none"), false);
  assert.equal(image.exists("/etc/hostname/none"), false);
  assert.equal(image.exists("/absolute"), true);
  for (const nowhere of ["/loop", "/loop/x", `/${"x".repeat(300)}`]) assert.equal(image.exists(nowhere), false);
  for (const wrong of [0.5, -1, NaN, -Infinity, "1", undefined, null]) {
    assert.throws(() => image.read("/name", wrong, 1), TypeError, `${wrong}`);
    assert.throws(() => image.read("/name", 0, wrong), TypeError, `${wrong}`);
  }
  assert.equal(Buffer.from(image.read("/name", 1, Infinity)).toString(), "ox\n");
  assert.equal(image.read("/name", Infinity, 1).length, 0);
  const one = image.tar("/");
  one.next();
  image.tar("/etc").next();
  code(() => one.next(), "EBUSY");
  image.close();
  code(() => image.stat("/"), "EBADF");
  await assert.rejects(open(join(place, "none.img")), { code: "ENOENT" });
  await assert.rejects(open({ size: -1, read() {} }), TypeError);
  await assert.rejects(open(true), TypeError);
});

test("what cannot be read is an error, not nothing", async () => {
  const bytes = readFileSync(disk);
  for (const path of ["/", "/etc", "/etc/deep/er"]) {
    let gone = false;
    const read = (offset, length) => {
      if (gone) throw new Error("the disk is gone");
      return bytes.subarray(offset, offset + length);
    };
    const image = await open({ size: bytes.length, read });
    gone = true;
    const failed = (act) => assert.throws(act, (e) => isTold(e) && /^E(IO|UCLEAN)$/.test(e.code), path);
    failed(() => image.readdir(path));
    failed(() => image.readdir(path, { withFileTypes: true }));
    failed(() => [...image.walk(path)]);
    failed(() => image.exists(`${path}/none`));
    failed(() => image.readFile("/etc/hostname"));
    failed(() => image.read("/large", 0, 10));
    failed(() => [...image.chunks("/large")]);
    gone = false;
    assert.ok(image.readdir(path).length > 2, path);
  }
  // Blocks of names that are damaged: what is left of them is in the list.
  const at = bytes.indexOf("file 250");
  assert.ok(at > 0);
  const start = at - (at % 4096);
  bytes.fill(0xff, start, start + 4096);
  const image = await open(bytes);
  assert.throws(() => image.readdir("/etc/deep/er"), (e) => isTold(e) && e.message.includes("/etc/deep/er"));
  const { entries, problems } = image.list("/etc/deep/er");
  assert.ok(problems.some(({ name }) => name === null) && entries.length > 100, `${entries.length}`);
});

test("what a reader throws is told, and it cannot use the image", async () => {
  const bytes = readFileSync(disk);
  let act = () => {};
  const read = (offset, length) => {
    act();
    return bytes.subarray(offset, offset + length);
  };
  const image = await open({ size: bytes.length, read });
  const why = new Error("the wire is cut");
  act = () => {
    throw why;
  };
  assert.throws(() => image.readFile("/large"), (e) => e.code === "EIO" && e.cause === why);
  act = () => image.stat("/");
  assert.throws(() => image.readFile("/large"), (e) => e.cause?.code === "EBUSY");
  act = () => {};
  assert.equal(image.readFile("/large").length, 9 << 20);
  await assert.rejects(open({ size: bytes.length, read: () => new Uint8Array(3) }), { code: "EIO" });
});

/** A module whose `extant_list` is `unreachable`, and whose other functions return 0. */
function trapping() {
  const text = (name) => [name.length, ...Buffer.from(name)];
  const section = (id, bytes) => {
    const length = bytes.length;
    return [id, (length & 0x7f) | 0x80, length >> 7, ...bytes];
  };
  // Types: [f64, i32] -> i32, [i32] -> i32, [] -> i32.
  const types = [3, 0x60, 2, 0x7c, 0x7f, 1, 0x7f, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 0, 1, 0x7f];
  const functions = [
    ["extant_open", 0, [0x41, 0]], ["extant_room", 1, [0x41, 0]], ["extant_list", 1, [0x00]],
    ["extant_result", 2, [0x41, 0]], ["extant_result_len", 2, [0x41, 2]],
    ["extant_more", 2, [0x41, 0]], ["extant_more_len", 2, [0x41, 0]],
  ];
  const count = functions.length;
  const exports = functions.flatMap(([name], at) => [...text(name), 0, at]);
  const bodies = functions.flatMap(([, , body]) => [body.length + 2, 0, ...body, 0x0b]);
  return new WebAssembly.Module(Uint8Array.from([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, types),
    ...section(3, [count, ...functions.map(([, type]) => type)]),
    ...section(5, [1, 0, 1]),
    ...section(7, [count + 1, ...text("memory"), 2, 0, ...exports]),
    ...section(10, [count, ...bodies]),
    // `{}` is what opening tells.
    ...section(11, [1, 0, 0x41, 0, 0x0b, 2, 0x7b, 0x7d]),
  ]));
}

test("an engine that ends is told, and made again", () => {
  const image = new Image(trapping(), { size: 0, read() {} });
  for (let time = 0; time < 3; time += 1) {
    assert.throws(() => image.readdir("/"), { code: "ERR_STOPPED", message: /the engine stopped/ });
  }
});

test("the types tell of every method", () => {
  const types = readFileSync(new URL("../index.d.ts", import.meta.url), "utf8");
  const told = types.slice(types.indexOf("export class Image {"));
  for (const name of Object.getOwnPropertyNames(Image.prototype)) {
    assert.match(told, new RegExp(`^  ${name}\\(`, "m"));
  }
  for (const [, name] of told.matchAll(/^ {2}(\w+)\(/gm)) {
    assert.ok(name in Image.prototype, name);
  }
});
