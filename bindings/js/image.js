// An image, over the module of WebAssembly. Nothing here belongs to Node or to a page.

import { bytesOf, namesOf, textOf } from "./names.js";
import { Dirent, NUMBERS, Stats } from "./stats.js";

/** Names of Linux's error numbers that the engine gives. */
const CODES = {
  1: "EPERM", 2: "ENOENT", 5: "EIO", 6: "ENXIO", 9: "EBADF", 13: "EACCES", 16: "EBUSY", 20: "ENOTDIR",
  21: "EISDIR", 22: "EINVAL", 27: "EFBIG", 30: "EROFS", 34: "ERANGE", 36: "ENAMETOOLONG",
  40: "ELOOP", 61: "ENODATA", 74: "EBADMSG", 95: "EOPNOTSUPP", 116: "ESTALE", 117: "EUCLEAN",
  126: "ENOKEY", 1000: "ERR_NOT_EXT4",
};

/** Of paths that lead to no file. */
const NOWHERE = new Set(["ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG"]);

/** Bytes of a file that are read at once. */
const PIECE = 4 << 20;

/** The largest file that `readFile` takes into memory. */
const LARGEST = 1 << 30;

/** What went wrong, with a `code` as those of Node's `fs`. */
export class ExtantError extends Error {
  constructor(message, code, options) {
    super(message, options);
    this.name = "ExtantError";
    this.code = code;
  }
}

/** An image, open for reading. */
export class Image {
  #module;
  #source;
  #partition;
  #onProgress;
  #exports;
  #isBusy = false;
  #isClosed = false;
  /** What the reader threw, until the call that read is over. */
  #thrown;
  /** Why an instance ended. */
  #panic;
  /** The archive that is being made. */
  #archive = 0;

  /**
   * Opens an image. `open` of this package makes the source.
   * @param {WebAssembly.Module} module the module of this package
   * @param {{size: number, read(offset: number, length: number): Uint8Array, close?(): void}} source
   * @param {{partition?: number, onProgress?: Function}} [options]
   */
  constructor(module, source, options = {}) {
    if (!Number.isSafeInteger(source.size) || source.size < 0) {
      throw new TypeError("a source has a size in bytes");
    }
    const { partition = 0 } = options;
    if (!Number.isInteger(partition) || partition < 0 || partition > 0xffff) {
      throw new TypeError("a partition is named by its number, from 1");
    }
    this.#module = module;
    this.#source = source;
    this.#partition = partition;
    this.#onProgress = options.onProgress;
    /** What the image and the file system are. */
    this.about = this.#start();
  }

  /** Makes an instance and opens the image in it. */
  #start() {
    const instance = new WebAssembly.Instance(this.#module, { extant: this.#imports() });
    this.#exports = instance.exports;
    const about = JSON.parse(this.#text(this.#run("extant_open", [this.#source.size, this.#partition])));
    return {
      formats: about.formats,
      partition: about.partition,
      partitions: about.partitions,
      label: about.label,
      uuid: about.uuid,
      blockSize: about.block_size,
      blocks: about.blocks,
      free: about.free,
      inodes: about.inodes,
      freeInodes: about.free_inodes,
      notices: about.notices,
    };
  }

  #imports() {
    return {
      extant_read_image: (offset, to, length) => {
        try {
          const bytes = this.#source.read(offset, length >>> 0);
          if (bytes.length !== length >>> 0) return 0;
          this.#view(to, length).set(bytes);
          return 1;
        } catch (e) {
          this.#thrown = e;
          return 0;
        }
      },
      extant_progress: (what, length, done, all) => {
        try {
          this.#onProgress?.(this.#text(this.#view(what, length)), done, all);
        } catch {
          // What a listener throws is no matter of the image.
        }
      },
      extant_panic: (why, length) => {
        this.#panic = this.#text(this.#view(why, length));
      },
    };
  }

  #view(start, length) {
    return new Uint8Array(this.#exports.memory.buffer, start >>> 0, length >>> 0);
  }

  #text(bytes) {
    return new TextDecoder().decode(bytes);
  }

  /** Calls a function of the engine, and returns a copy of its result. */
  #call(name, ...args) {
    this.#enter();
    return this.#run(name, args);
  }

  /** Calls a function that takes a path. */
  #callAt(path, name, ...args) {
    this.#enter();
    const bytes = bytesOf(path);
    const room = this.#guard(() => this.#exports.extant_room(bytes.length));
    this.#view(room, bytes.length).set(bytes);
    return this.#run(name, args);
  }

  #enter() {
    if (this.#isClosed) throw new ExtantError("the image is closed", "EBADF");
    if (this.#isBusy) {
      throw new ExtantError("the image is in use: its reader must not use it", "EBUSY");
    }
    // The last instance has ended.
    if (!this.#exports) {
      try {
        this.#start();
      } catch (e) {
        this.#exports = undefined;
        throw e;
      }
    }
  }

  #run(name, args) {
    this.#thrown = undefined;
    const code = this.#guard(() => this.#exports[name](...args));
    const result = this.#view(this.#exports.extant_result(), this.#exports.extant_result_len());
    if (code === 0) return result.slice();
    const message = this.#text(result);
    throw new ExtantError(message, CODES[code] ?? `E${code}`, { cause: this.#thrown });
  }

  /** Does something with the instance. One that ends in a trap is not used any more. */
  #guard(act) {
    this.#isBusy = true;
    this.#panic = undefined;
    try {
      return act();
    } catch (e) {
      this.#exports = undefined;
      const why = this.#panic ?? e.message;
      throw new ExtantError(`the engine stopped: ${why}`, "ERR_STOPPED", { cause: e });
    } finally {
      this.#isBusy = false;
    }
  }

  /** What stands beside the last result. */
  #more() {
    return this.#view(this.#exports.extant_more(), this.#exports.extant_more_len()).slice();
  }

  /**
   * Names of a directory in the order of their bytes; or what is known of each without its inode.
   * Throws where some of the names cannot be read: `list` gives the others.
   */
  readdir(path = "/", options = {}) {
    const { names, numbers, problems } = this.#list(path, 0);
    for (const [at, code, message] of problems) {
      if (at !== null) continue;
      throw new ExtantError(`${path}: ${message}`, CODES[code] ?? `E${code}`, { cause: this.#thrown });
    }
    if (!options.withFileTypes) return names;
    return names.map((name, at) => new Dirent(name, path, numbers[2 * at], numbers[2 * at + 1]));
  }

  /** What is known of each file of a directory, and what of it could not be looked at. */
  list(path = "/") {
    const { names, numbers, problems } = this.#list(path, 1);
    const entries = names.map((name, at) => new Stats(numbers, NUMBERS * at, name));
    return {
      entries,
      problems: problems.map(([at, code, message]) => ({
        name: at === null ? null : names[at],
        code: CODES[code] ?? `E${code}`,
        message,
      })),
    };
  }

  #list(path, whole) {
    const result = this.#callAt(path, "extant_list", whole);
    const numbers = new Float64Array(this.#more().buffer);
    const end = result.length - 4;
    const length = new DataView(result.buffer).getUint32(end, true);
    const problems = JSON.parse(this.#text(result.subarray(end - length, end)));
    return { names: namesOf(result.subarray(0, end - length)), numbers, problems };
  }

  /** What is known of a file. A symbolic link at the end of the path is followed. */
  stat(path) {
    return this.#stat(path, 1);
  }

  /** What is known of a file or of a symbolic link. */
  lstat(path) {
    return this.#stat(path, 0);
  }

  #stat(path, follow) {
    const bytes = this.#callAt(path, "extant_stat", follow);
    return new Stats(new Float64Array(bytes.buffer), 0);
  }

  /** Whether there is a file. */
  exists(path) {
    try {
      this.stat(path);
      return true;
    } catch (e) {
      if (NOWHERE.has(e.code)) return false;
      throw e;
    }
  }

  /** The target of a symbolic link. */
  readlink(path) {
    return textOf(this.#callAt(path, "extant_link"));
  }

  /** The content of a file: its bytes, or text where an encoding is named. */
  readFile(path, options) {
    const encoding = typeof options === "string" ? options : options?.encoding;
    const { ino, size } = this.stat(path);
    if (size > LARGEST) {
      const message = `${size} bytes are too many to be read at once: use chunks`;
      throw new ExtantError(message, "ERR_FS_FILE_TOO_LARGE");
    }
    const bytes = new Uint8Array(size);
    let at = 0;
    for (const chunk of this.#chunks(ino, 0, size)) {
      bytes.set(chunk, at);
      at += chunk.length;
    }
    return encoding ? new TextDecoder(encoding).decode(bytes) : bytes;
  }

  /** Bytes of a file from `offset` on, fewer than `length` at its end only. */
  read(path, offset, length) {
    for (const number of [offset, length]) {
      // As many bytes as there are may be asked for.
      if (number !== Infinity && !Number.isInteger(number) || number < 0) {
        throw new TypeError("an offset and a length are whole numbers, not below 0");
      }
    }
    const { ino, size } = typeof path === "object" && "ino" in path ? path : this.stat(path);
    const end = Math.min(size, offset + length);
    if (end - offset > LARGEST) throw new ExtantError("too many bytes at once", "EINVAL");
    const bytes = new Uint8Array(Math.max(0, end - offset));
    let at = 0;
    for (const chunk of this.#chunks(ino, offset, end)) {
      bytes.set(chunk, at);
      at += chunk.length;
    }
    return bytes;
  }

  /** The content of a file in pieces, for files of any size. */
  *chunks(path) {
    const { ino, size } = this.stat(path);
    // An error comes before the first piece.
    if (size === 0) this.#call("extant_read", ino, 0, 0);
    yield* this.#chunks(ino, 0, size);
  }

  *#chunks(ino, start, end) {
    for (let at = start; at < end; ) {
      const bytes = this.#call("extant_read", ino, at, Math.min(PIECE, end - at));
      if (bytes.length === 0) throw new ExtantError(`the file ends early, at byte ${at}`, "EUCLEAN");
      at += bytes.length;
      yield bytes;
    }
  }

  /**
   * Everything below a directory, parents before children, names in the order of their bytes:
   * `[path, stats]` each. What cannot be read goes to `onProblem`, or else is thrown.
   */
  *walk(path = "/", { onProblem } = {}) {
    const problem = (at, code, message) => {
      const error = new ExtantError(`${at}: ${message}`, code);
      if (!onProblem) throw error;
      onProblem(error);
    };
    const entered = new Set([this.stat(path).ino]);
    const waiting = [path];
    while (waiting.length > 0) {
      const dir = waiting.pop();
      const listed = this.list(dir);
      for (const { name, code, message } of listed.problems) {
        problem(name === null ? dir : join(dir, name), code, message);
      }
      const below = [];
      for (const stats of listed.entries) {
        // Of which nothing is known but the number.
        if (Number.isNaN(stats.mode)) continue;
        const at = join(dir, stats.name);
        yield [at, stats];
        if (!stats.isDirectory() || stats.name === "..") continue;
        if (entered.has(stats.ino)) {
          problem(at, "EUCLEAN", "the directory has a second place in the file system");
        } else {
          entered.add(stats.ino);
          below.push(at);
        }
      }
      waiting.push(...below.reverse());
    }
  }

  /**
   * A pax archive of what is at and below a path, in pieces. Returns sentences about what is not
   * in it, or not whole.
   */
  *tar(path = "/") {
    this.#callAt(path, "extant_tar");
    const archive = ++this.#archive;
    for (;;) {
      if (archive !== this.#archive) {
        throw new ExtantError("another archive was begun: one is made at a time", "EBUSY");
      }
      const piece = this.#call("extant_tar_piece");
      if (piece.length === 0) return JSON.parse(this.#text(this.#more()));
      yield piece;
    }
  }

  /** Checks the file system: the verdict, counts and findings of `extant check --json`. */
  check() {
    return JSON.parse(this.#text(this.#call("extant_check")));
  }

  /**
   * How the blocks are used, in at most `cells` parts of the file system: the blocks of each that
   * hold structure, that hold content, and that are free.
   */
  picture(cells = 4096) {
    const bytes = this.#call("extant_picture", cells);
    const numbers = new Float64Array(bytes.buffer);
    const picture = [];
    for (let at = 0; at < numbers.length; at += 3) {
      picture.push({ structure: numbers[at], content: numbers[at + 1], free: numbers[at + 2] });
    }
    return picture;
  }

  /** Lets go of the image. */
  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#exports = undefined;
    this.#source.close?.();
  }

  [Symbol.dispose ?? Symbol.for("dispose")]() {
    this.close();
  }
}

function join(dir, name) {
  return dir.endsWith("/") ? dir + name : `${dir}/${name}`;
}

/** A source of bytes in memory. */
export function sourceOfBytes(bytes) {
  return {
    size: bytes.length,
    read: (offset, length) => bytes.subarray(offset, offset + length),
  };
}

/** A source of a blob, in a worker: the only place where a page may read one at once. */
export function sourceOfBlob(blob) {
  const reader = new FileReaderSync();
  return {
    size: blob.size,
    read: (offset, length) =>
      new Uint8Array(reader.readAsArrayBuffer(blob.slice(offset, offset + length))),
  };
}

/** The source of what is no file of a system. */
export async function sourceOf(from) {
  if (from instanceof ArrayBuffer) return sourceOfBytes(new Uint8Array(from));
  if (ArrayBuffer.isView(from)) {
    return sourceOfBytes(new Uint8Array(from.buffer, from.byteOffset, from.byteLength));
  }
  if (typeof Blob !== "undefined" && from instanceof Blob) {
    if (typeof FileReaderSync !== "undefined") return sourceOfBlob(from);
    if (from.size <= 256 << 20) return sourceOfBytes(new Uint8Array(await from.arrayBuffer()));
    throw new TypeError("a file of more than 256 MiB is opened in a worker, where it is read in slices");
  }
  if (from && typeof from.read === "function" && typeof from.size === "number") return from;
  throw new TypeError("an image is a Blob, bytes, or an object with `size` and `read`");
}
