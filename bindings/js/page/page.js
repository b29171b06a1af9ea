// The page: what is shown, and what is asked of the worker.

/** Rows that a listing shows at once. */
const ROWS = 500;

const $ = (id) => document.getElementById(id);

/** An element with text and children. */
function make(name, options = {}, ...children) {
  const { text, on, ...attributes } = options;
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  for (const [event, listener] of Object.entries(on ?? {})) element.addEventListener(event, listener);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

// The worker, and what waits for its answers.

const waiting = new Map();
let worker;
let last = 0;

function startWorker() {
  worker?.terminate();
  for (const { reject } of waiting.values()) reject(new Error("this was given up"));
  waiting.clear();
  const url = URL.createObjectURL(new Blob([EXTANT.worker], { type: "text/javascript" }));
  worker = new Worker(url);
  URL.revokeObjectURL(url);
  worker.onmessage = ({ data }) => {
    if (data.progress) return showProgress(data.progress);
    const { resolve, reject } = waiting.get(data.id) ?? {};
    waiting.delete(data.id);
    if (data.error) reject?.(Object.assign(new Error(data.error.message), data.error));
    else resolve?.(data.result);
  };
  worker.onerror = (event) => say(`The page has a fault: ${event.message}`, true);
  worker.postMessage({ engine: EXTANT.engine });
}

function ask(method, ...args) {
  const id = ++last;
  worker.postMessage({ id, method, args });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

// What the page says.

function say(text, isProblem = false) {
  $("status").textContent = text;
  $("status").classList.toggle("problem", isProblem);
}

function showProgress({ what, done, all }) {
  const bar = $("progress");
  bar.hidden = false;
  bar.max = Math.max(all, done, 1);
  bar.value = done;
  bar.setAttribute("aria-label", what);
}

/** Does something that takes time, and says what came of it. */
async function work(text, act) {
  say(text);
  document.body.setAttribute("aria-busy", "true");
  try {
    return await act();
  } catch (e) {
    say(e.message, true);
    return undefined;
  } finally {
    $("progress").hidden = true;
    document.body.removeAttribute("aria-busy");
  }
}

const BYTES = ["bytes", "KiB", "MiB", "GiB", "TiB"];

function human(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < BYTES.length - 1) [bytes, unit] = [bytes / 1024, unit + 1];
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${BYTES[unit]}`;
}

/** A name as it is shown: what cannot be seen, or turns text around, is written out. */
function shown(name) {
  return name.replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udfff]/gu,
    (character) => {
      const code = character.codePointAt(0);
      if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
      return `\\u{${code.toString(16)}}`;
    },
  );
}

/** A name that any system takes for a file. */
function fileName(name) {
  const plain = shown(name).replace(/[\\/:*?"<>|]/g, "_");
  return plain === "" || /^\.+$/.test(plain) ? "root" : plain;
}

function mode(bits) {
  const letters = [..."rwxrwxrwx"];
  return letters.map((letter, at) => (bits & (1 << (8 - at)) ? letter : "-")).join("");
}

// Opening.

let file;
let path = "/";
let rows = [];

async function open(chosen, partition) {
  file = chosen;
  startWorker();
  for (const id of ["image", "preview", "verdict", "map"]) $(id).hidden = true;
  const about = await work(`Opening ${shown(file.name)} ...`, () => ask("open", file, partition));
  if (!about) return;
  showAbout(about);
  $("image").hidden = false;
  await go("/");
}

function showAbout(about) {
  const format = about.formats.length > 0 ? `${about.formats.join(", ")}, ` : "";
  const label = about.label ? `, label ${shown(about.label)}` : "";
  const used = (about.blocks - about.free) * about.blockSize;
  $("about").textContent =
    `${format}${human(file.size)}; file system of ${human(about.blocks * about.blockSize)}, ` +
    `${human(used)} in use${label}`;
  $("name").textContent = shown(file.name);
  $("notices").replaceChildren(...about.notices.map((text) => make("li", { text })));
  const partitions = about.partitions.map((part) => {
    const name = part.name ? ` (${shown(part.name)})` : "";
    const text = `${part.number}${name}: ${human(part.size)}, ${part.holds}`;
    return make("option", { value: part.number, text });
  });
  $("partition").replaceChildren(...partitions);
  $("partitions").hidden = partitions.length === 0;
  if (about.partition !== null) $("partition").value = about.partition;
}

// Files.

const below = (name) => (path === "/" ? `/${name}` : `${path}/${name}`);

async function go(to, focus = false) {
  const listed = await work(`Listing ${shown(to)} ...`, () => ask("list", to));
  if (!listed) return;
  path = to;
  rows = listed.rows;
  showPath();
  $("rows").replaceChildren();
  showMore();
  const problems = listed.problems.map(({ name, message }) =>
    make("li", { text: name === null ? message : `${shown(name)}: ${message}` }),
  );
  $("problems").replaceChildren(...problems);
  say(`${rows.length} ${rows.length === 1 ? "file" : "files"} in ${shown(path)}`);
  if (focus) $("files-heading").focus();
}

function showPath() {
  const names = path.split("/").filter((name) => name !== "");
  const steps = [make("li", {}, step("/", "/"))];
  names.forEach((name, at) => {
    steps.push(make("li", {}, step(name, `/${names.slice(0, at + 1).join("/")}`)));
  });
  steps.at(-1).firstChild.setAttribute("aria-current", "page");
  $("path").replaceChildren(...steps);
}

function step(name, to) {
  return make("button", { type: "button", text: shown(name), on: { click: () => go(to, true) } });
}

function showMore() {
  const start = $("rows").childElementCount;
  const next = rows.slice(start, start + ROWS).map(row);
  $("rows").append(...next);
  const left = rows.length - start - next.length;
  $("more").hidden = left === 0;
  $("more").textContent = `Show more (${left} left)`;
  next[0]?.querySelector("button")?.setAttribute("data-first", "");
}

function row(entry) {
  const name = shown(entry.name);
  const act = () => choose(entry);
  const button = make("button", { type: "button", class: entry.type, text: name, on: { click: act } });
  const actions = make("td");
  if (entry.type === "file") {
    const label = `Download ${name}`;
    const on = { click: () => download(entry.name) };
    actions.append(make("button", { type: "button", text: "Download", "aria-label": label, on }));
  }
  if (entry.type === "directory") {
    const label = `Download ${name} as tar`;
    const on = { click: () => tar(below(entry.name), entry.name) };
    actions.append(make("button", { type: "button", text: "tar", "aria-label": label, on }));
  }
  const time = entry.mtime === null ? "" : entry.mtime.slice(0, 16).replace("T", " ");
  const is = entry.mtime === null ? "cannot be read" : entry.type;
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, button),
    make("td", { text: is }),
    make("td", { class: "number", text: entry.mtime === null ? "" : entry.size }),
    make("td", { class: "mode", text: entry.mtime === null ? "" : mode(entry.mode) }),
    make("td", { text: entry.mtime === null ? "" : `${entry.uid}:${entry.gid}` }),
    make("td", { text: time }),
    actions,
  );
}

async function choose(entry) {
  const at = below(entry.name);
  if (entry.type === "directory") return go(at, true);
  if (entry.type === "file") return preview(at, entry.name);
  if (entry.type !== "symlink") return say(`${shown(entry.name)} is a ${entry.type}: it has no content`);
  const found = await work(`Following ${shown(entry.name)} ...`, () => ask("follow", at));
  if (!found) return;
  const { target, type, why } = found;
  say(`${shown(entry.name)} leads to ${shown(target)}${type ? `, a ${type}` : `: ${why}`}`, !type);
  if (type === "directory") await go(at, true);
  if (type === "file") await preview(at, entry.name);
}

async function preview(at, name) {
  const found = await work(`Reading ${shown(name)} ...`, () => ask("preview", at));
  if (!found) return;
  const { size, bytes } = found;
  const isText = !bytes.some((byte) => byte === 0 || (byte < 32 && ![8, 9, 10, 12, 13, 27].includes(byte)));
  $("preview-heading").textContent = shown(name);
  const part = isText ? bytes : bytes.subarray(0, 4096);
  $("content").textContent = isText ? new TextDecoder().decode(part) : hex(part);
  const rest = part.length < size ? `the first ${human(part.length)} of ${human(size)}` : human(size);
  $("preview-about").textContent = `${isText ? "Text" : "Bytes"}, ${rest}`;
  $("preview").hidden = false;
  $("preview-heading").focus();
  say(`${shown(name)} is shown`);
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const line = [...bytes.subarray(at, at + 16)];
    const digits = line.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = line.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

// Downloads.

function save(blob, name) {
  // Of bytes without a type a browser guesses one, and puts an extension behind the name.
  const bytes = new Blob([blob], { type: "application/octet-stream" });
  const url = URL.createObjectURL(bytes);
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

async function download(name) {
  const blob = await work(`Reading ${shown(name)} ...`, () => ask("download", below(name)));
  if (!blob) return;
  save(blob, fileName(name));
  say(`${shown(name)}: ${human(blob.size)} are downloaded`);
}

async function tar(at, name) {
  const made = await work(`Archiving ${shown(at)} ...`, () => ask("tar", at));
  if (!made) return;
  save(made.blob, `${fileName(name)}.tar`);
  const problems = made.problems.map((text) => make("li", { text: shown(text) }));
  $("problems").replaceChildren(...problems);
  const lacks = problems.length > 0 ? `; ${problems.length} files are not in it, or not whole` : "";
  say(`An archive of ${human(made.blob.size)} is downloaded${lacks}`, problems.length > 0);
}

// The check and the map.

async function check() {
  const verdict = await work("Checking ...", () => ask("check"));
  if (!verdict) return;
  const { clean, errors, fatal, warnings, inodes, directories, blocks, findings } = verdict;
  const text =
    `${clean ? "The file system is clean" : "The file system is NOT clean"}: ` +
    `${errors + fatal} errors, ${warnings} warnings; ${inodes} inodes in use, ` +
    `${directories} directories, ${blocks} blocks`;
  $("verdict-text").textContent = text;
  const lines = findings.slice(0, ROWS).map((finding) => {
    const place = ["group", "inode", "inode_block", "block"]
      .filter((key) => key in finding)
      .map((key) => `${key.replace("_", " ")} ${finding[key]}`);
    const cells = [finding.severity, finding.code, place.join(", "), finding.evidence];
    return make("tr", { class: finding.severity }, ...cells.map((text) => make("td", { text: shown(text) })));
  });
  $("findings").replaceChildren(...lines);
  $("findings-table").hidden = lines.length === 0;
  const left = findings.length - lines.length;
  $("findings-left").textContent = left > 0 ? `... and ${left} findings more` : "";
  $("verdict").hidden = false;
  $("verdict-heading").focus();
  say(text, !clean);
}

const COLORS = { structure: [214, 96, 30], content: [38, 99, 171], free: [226, 226, 226] };

async function map() {
  const width = 128;
  const cells = await work("Drawing ...", () => ask("picture", width * 64));
  if (!cells) return;
  const height = Math.ceil(cells.length / width);
  const canvas = $("picture");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  const sums = { structure: 0, content: 0, free: 0 };
  cells.forEach((cell, at) => {
    const all = cell.structure + cell.content + cell.free || 1;
    const color = [0, 0, 0];
    for (const kind of Object.keys(COLORS)) {
      sums[kind] += cell[kind];
      COLORS[kind].forEach((part, of) => (color[of] += (part * cell[kind]) / all));
    }
    pixels.data.set([...color.map(Math.round), 255], 4 * at);
  });
  context.putImageData(pixels, 0, 0);
  const text =
    `${sums.structure} blocks for the structure, ${sums.content} with content, ${sums.free} free, ` +
    `from the first block at the top left to the last one`;
  canvas.setAttribute("aria-label", `Map of the blocks: ${text}`);
  $("map-text").textContent = text;
  $("map").hidden = false;
  $("map-heading").focus();
  say("The map of the blocks is drawn");
}

// Keys: arrows go from name to name.

function arrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = event.target.closest("tr");
  if (!row) return;
  if (event.key === "Backspace" && path !== "/") {
    event.preventDefault();
    go(path.replace(/\/[^/]*$/, "") || "/", true);
    return;
  }
  const edge = { Home: "firstElementChild", End: "lastElementChild" }[event.key];
  if (!step && !edge) return;
  event.preventDefault();
  const next = edge
    ? $("rows")[edge]
    : step > 0 ? row.nextElementSibling : row.previousElementSibling;
  next?.querySelector("button")?.focus();
}

// The beginning.

async function engine() {
  const packed = Uint8Array.from(atob(EXTANT.wasm), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

async function begin() {
  EXTANT.engine = await engine();
  $("file").addEventListener("change", ({ target }) => {
    const [chosen] = target.files;
    // Otherwise a browser says nothing when the same file is chosen again, which may have changed.
    target.value = "";
    if (chosen) open(chosen);
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    const [dropped] = event.dataTransfer.files;
    if (dropped) open(dropped);
  });
  $("partition").addEventListener("change", ({ target }) => open(file, Number(target.value)));
  $("more").addEventListener("click", () => {
    const at = $("rows").childElementCount;
    showMore();
    $("rows").children[at]?.querySelector("button")?.focus();
  });
  $("rows").addEventListener("keydown", arrows);
  $("check").addEventListener("click", check);
  $("draw").addEventListener("click", map);
  $("tar").addEventListener("click", () => tar(path, path.split("/").at(-1)));
  $("file").disabled = false;
  say("Choose an image, or drop one here");
}

begin().catch((e) => say(`This browser cannot run the page: ${e.message}`, true));
