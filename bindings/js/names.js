// Names are bytes on the disk. As text they are UTF-8, and a byte that is none is kept as a lone
// surrogate, U+DC80 to U+DCFF, as Python does it: every name has one text, and gives its bytes back.

const ESCAPE = 0xdc00;
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** The text of a name. */
export function textOf(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return lossless(bytes);
  }
}

/** The texts of names, each of which has a zero behind it. */
export function namesOf(bytes) {
  if (bytes.length === 0) return [];
  try {
    return strict.decode(bytes.subarray(0, -1)).split("\0");
  } catch {
    const names = [];
    for (let start = 0; start < bytes.length; ) {
      const end = bytes.indexOf(0, start);
      names.push(textOf(bytes.subarray(start, end)));
      start = end + 1;
    }
    return names;
  }
}

/** Text of bytes of which not all are UTF-8. */
function lossless(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const length = lengthAt(bytes[at]);
    try {
      text += strict.decode(bytes.subarray(at, at + length));
      at += length;
    } catch {
      text += String.fromCharCode(ESCAPE + bytes[at]);
      at += 1;
    }
  }
  return text;
}

/** Bytes of the character that begins with this one. */
function lengthAt(byte) {
  if (byte >= 0xf0) return 4;
  if (byte >= 0xe0) return 3;
  return byte >= 0xc0 ? 2 : 1;
}

/** The bytes of a path. */
export function bytesOf(path) {
  if (path instanceof Uint8Array) return path;
  if (typeof path !== "string") throw new TypeError("a path is a string or a Uint8Array");
  if (!/[\udc80-\udcff]/.test(path)) return encoder.encode(path);
  const bytes = [];
  // By characters: a surrogate that stands here alone is no half of one.
  for (const character of path) {
    const code = character.codePointAt(0);
    if (code >= 0xdc80 && code <= 0xdcff) bytes.push(code - ESCAPE);
    else bytes.push(...encoder.encode(character));
  }
  return Uint8Array.from(bytes);
}
