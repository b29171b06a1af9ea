// The worker of the page: it has the image, so that reading never stops the page.

let engine;
let image;

/** Bytes that a preview looks at. */
const PREVIEW = 64 << 10;

/** Bytes after which what is gathered becomes a blob, which a browser keeps on a disk. */
const GATHERED = 32 << 20;

/** Messages about progress at most every so many milliseconds. */
const TOLD_EVERY = 100;

const methods = {
  async open(file, partition) {
    image?.close();
    image = undefined;
    const source = await sourceOf(file);
    image = new Image(engine, source, { partition, onProgress: progress() });
    return image.about;
  },

  list(path) {
    const { entries, problems } = image.list(path);
    const rows = entries.map((stats) => ({
      name: stats.name,
      ino: stats.ino,
      type: stats.type,
      mode: stats.mode,
      uid: stats.uid,
      gid: stats.gid,
      size: stats.size,
      mtime: Number.isNaN(stats.mode) ? null : stats.mtime.toISOString(),
    }));
    return { rows, problems };
  },

  /** Where a symbolic link leads: its target, and whether there is a directory or a file. */
  follow(path) {
    const target = image.readlink(path);
    try {
      return { target, type: image.stat(path).type };
    } catch (e) {
      return { target, type: null, why: e.message };
    }
  },

  preview(path) {
    const { size } = image.stat(path);
    return { size, bytes: image.read(path, 0, Math.min(size, PREVIEW)) };
  },

  download(path) {
    return gathered(image.chunks(path), image.stat(path).size, "reading");
  },

  tar(path) {
    const problems = [];
    const all = (image.about.blocks - image.about.free) * image.about.blockSize;
    const pieces = (function* () {
      problems.push(...(yield* image.tar(path)));
    })();
    const blob = gathered(pieces, all, "archiving");
    return { blob, problems };
  },

  check() {
    return image.check();
  },

  picture(cells) {
    return image.picture(cells);
  },
};

/** Sends how far work is to the page, not too often. */
function progress() {
  let last = 0;
  return (what, done, all) => {
    const now = performance.now();
    if (now - last < TOLD_EVERY) return;
    last = now;
    postMessage({ progress: { what, done, all } });
  };
}

/** One blob of pieces. */
function gathered(pieces, all, what) {
  const tell = progress();
  let blob = new Blob([]);
  let waiting = [];
  let length = 0;
  for (const piece of pieces) {
    waiting.push(piece);
    length += piece.length;
    if (length >= GATHERED) {
      blob = new Blob([blob, ...waiting]);
      [waiting, length] = [[], 0];
    }
    tell(what, blob.size + length, all);
  }
  return new Blob([blob, ...waiting]);
}

onmessage = async ({ data }) => {
  if (data.engine) {
    engine = data.engine;
    return;
  }
  const { id, method, args } = data;
  try {
    postMessage({ id, result: await methods[method](...args) });
  } catch (e) {
    postMessage({ id, error: { message: e.message, code: e.code ?? null } });
  }
};
