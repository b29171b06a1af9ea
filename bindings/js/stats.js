// What is known of files.

/** Numbers that the engine gives of a file. Their order is that of `crates/wasm/src/listing.rs`. */
export const NUMBERS = 18;

const TYPES = {
  0o010000: "fifo", 0o020000: "char-device", 0o040000: "directory", 0o060000: "block-device",
  0o100000: "file", 0o120000: "symlink", 0o140000: "socket",
};

class Typed {
  isFile() {
    return (this.mode & 0o170000) === 0o100000;
  }
  isDirectory() {
    return (this.mode & 0o170000) === 0o040000;
  }
  isSymbolicLink() {
    return (this.mode & 0o170000) === 0o120000;
  }
  isFIFO() {
    return (this.mode & 0o170000) === 0o010000;
  }
  isSocket() {
    return (this.mode & 0o170000) === 0o140000;
  }
  isCharacterDevice() {
    return (this.mode & 0o170000) === 0o020000;
  }
  isBlockDevice() {
    return (this.mode & 0o170000) === 0o060000;
  }
  /** The type as `extant ls --json` names it. */
  get type() {
    return TYPES[this.mode & 0o170000] ?? "unknown";
  }
}

/** A name of a directory. */
export class Dirent extends Typed {
  constructor(name, parentPath, ino, mode) {
    super();
    this.name = name;
    this.parentPath = parentPath;
    this.ino = ino;
    this.mode = mode;
  }
}

/** What is known of a file. */
export class Stats extends Typed {
  #numbers;
  #at;

  constructor(numbers, at, name) {
    super();
    if (name !== undefined) this.name = name;
    this.ino = numbers[at];
    this.mode = numbers[at + 1];
    this.uid = numbers[at + 2];
    this.gid = numbers[at + 3];
    this.size = numbers[at + 4];
    this.blocks = numbers[at + 5];
    this.nlink = numbers[at + 6];
    // A view of its own for each of many files would take longer than all the rest.
    this.#numbers = numbers;
    this.#at = at;
    if (!Number.isNaN(numbers[at + 15])) {
      this.device = { major: numbers[at + 15], minor: numbers[at + 16] };
    }
    if (!Number.isNaN(numbers[at + 17])) this.project = numbers[at + 17];
  }

  /** Seconds since 1970 and nanoseconds. */
  time(which) {
    const number = ["mtime", "atime", "ctime", "birthtime"].indexOf(which);
    if (number < 0) throw new TypeError("a time is mtime, atime, ctime or birthtime");
    const at = this.#at + 7 + 2 * number;
    const seconds = this.#numbers[at];
    return Number.isNaN(seconds) ? null : [seconds, this.#numbers[at + 1]];
  }

  get mtime() {
    return date(this.time("mtime"));
  }
  get atime() {
    return date(this.time("atime"));
  }
  get ctime() {
    return date(this.time("ctime"));
  }
  /** When the file was made, or null where its inode is too small to say. */
  get birthtime() {
    return date(this.time("birthtime"));
  }
}

function date(time) {
  return time && new Date(time[0] * 1000 + Math.floor(time[1] / 1e6));
}
