/** ext2, ext3 and ext4 images: listed, read, archived and checked, without a mount. */

/** Bytes that an image lies in, read at once. */
export interface Source {
  readonly size: number;
  /** Returns exactly `length` bytes from `offset` on, or throws. Must not use the image. */
  read(offset: number, length: number): Uint8Array;
  close?(): void;
}

export interface OpenOptions {
  /** The number of a partition, from 1. Without it the first ext4 file system is opened. */
  partition?: number;
  /** Hears how far opening a compressed image is, and a check. */
  onProgress?(what: string, done: number, all: number): void;
}

/**
 * Opens an image: raw, a disk with partitions, qcow2, VHD, sparse VMDK, Android sparse, or any of
 * these compressed with gzip, Zstandard or xz.
 * In Node `from` may be a path, a URL of a file, or the number of an open file. In a page a `Blob`
 * of more than 256 MiB is opened in a worker.
 */
export function open(
  from: string | URL | number | Blob | ArrayBuffer | ArrayBufferView | Source,
  options?: OpenOptions,
): Promise<Image>;

/** What went wrong. */
export class ExtantError extends Error {
  /**
   * As those of Node's `fs`: `ENOENT`, `ENOTDIR` and so on. `EUCLEAN` and `EBADMSG` are damage,
   * `ERR_NOT_EXT4` is no ext4 file system at all, `ERR_STOPPED` that the engine ended, which the
   * next call starts again.
   */
  readonly code: string;
}

export interface Partition {
  number: number;
  /** Bytes from the start of the disk. */
  start: number;
  size: number;
  name: string | null;
  /** What is in it, in words. */
  holds: string;
}

export interface About {
  /**
   * What the file is around the disk, from the outside in: `gzip`, `zstd`, `xz`, `qcow2`, `vhd`,
   * `vhd-fixed`, `vmdk-sparse`, `simg`.
   */
  formats: string[];
  partition: number | null;
  partitions: Partition[];
  label: string;
  uuid: string;
  blockSize: number;
  blocks: number;
  free: number;
  inodes: number;
  freeInodes: number;
  /** What there is to know about the file system, as sentences. */
  notices: string[];
}

declare class Typed {
  readonly mode: number;
  readonly type:
    | "file" | "directory" | "symlink" | "fifo" | "socket" | "char-device" | "block-device"
    | "unknown";
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
  isFIFO(): boolean;
  isSocket(): boolean;
  isCharacterDevice(): boolean;
  isBlockDevice(): boolean;
}

/** A name of a directory. */
export class Dirent extends Typed {
  readonly name: string;
  readonly parentPath: string;
  readonly ino: number;
}

/** What is known of a file. */
export class Stats extends Typed {
  /** In listings. */
  readonly name?: string;
  readonly ino: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  /** In units of 512 bytes. */
  readonly blocks: number;
  readonly nlink: number;
  readonly device?: { major: number; minor: number };
  readonly project?: number;
  readonly mtime: Date;
  readonly atime: Date;
  readonly ctime: Date;
  readonly birthtime: Date | null;
  /** Seconds since 1970 and nanoseconds. */
  time(which: "mtime" | "atime" | "ctime" | "birthtime"): [number, number] | null;
}

/** What of a directory could not be looked at. */
export interface Problem {
  /** Null for the directory itself. */
  name: string | null;
  code: string;
  message: string;
}

export interface Finding {
  severity: "warning" | "error" | "fatal";
  code: string;
  evidence: string;
  group?: number;
  inode?: number;
  inode_block?: number;
  block?: number;
}

export interface Verdict {
  clean: boolean;
  warnings: number;
  errors: number;
  fatal: number;
  inodes: number;
  directories: number;
  blocks: number;
  /** Of each code at most the first thousand. */
  findings: Finding[];
}

/** Blocks of a part of a file system. */
export interface Cell {
  structure: number;
  content: number;
  free: number;
}

/**
 * Paths are taken from the root. Names that are not UTF-8 have a lone surrogate, U+DC80 to U+DCFF,
 * in the place of each byte that is none, and lead to their file; a path may also be bytes.
 */
export type Path = string | Uint8Array;

/** An image, open for reading. */
export class Image {
  constructor(module: WebAssembly.Module, source: Source, options?: OpenOptions);
  readonly about: About;
  readdir(path?: string, options?: { withFileTypes?: false }): string[];
  readdir(path: string, options: { withFileTypes: true }): Dirent[];
  list(path?: Path): { entries: Stats[]; problems: Problem[] };
  stat(path: Path): Stats;
  lstat(path: Path): Stats;
  exists(path: Path): boolean;
  readlink(path: Path): string;
  readFile(path: Path): Uint8Array;
  readFile(path: Path, encoding: string | { encoding: string }): string;
  read(path: Path | Stats, offset: number, length: number): Uint8Array;
  chunks(path: Path): Generator<Uint8Array, void>;
  walk(
    path?: string,
    options?: { onProblem?(problem: ExtantError): void },
  ): Generator<[string, Stats], void>;
  /** Returns sentences about what is not in the archive, or not whole. */
  tar(path?: Path): Generator<Uint8Array, string[]>;
  check(): Verdict;
  picture(cells?: number): Cell[];
  close(): void;
}
