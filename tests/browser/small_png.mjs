/** The same picture in fewer bytes: with its 256 commonest colours, and packed as tightly as zlib can. */
import { deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = 8;

export function smaller(png) {
  const chunks = read(png);
  const header = Buffer.from(chunks.find(({ type }) => type === "IHDR").data);
  const [width, height, depth, colour] = [header.readUInt32BE(0), header.readUInt32BE(4), header[8], header[9]];
  if (depth !== 8 || (colour !== 2 && colour !== 6) || header[12] !== 0) return png;
  const size = colour === 6 ? 4 : 3;
  const rows = unfiltered(inflateSync(Buffer.concat(chunks.filter(({ type }) => type === "IDAT").map(({ data }) => data))), width * size, height, size);
  const { palette, indexOf } = reduced(rows, size);
  // Flat areas and text repeat byte for byte: no filter packs them best.
  const plain = Buffer.alloc(height * (width + 1));
  for (let y = 0, from = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1, from += size) plain[y * (width + 1) + 1 + x] = indexOf(colourAt(rows, from));
  }
  header[9] = 3;
  const packed = deflateSync(plain, { level: 9, memLevel: 9 });
  const made = Buffer.concat([png.subarray(0, SIGNATURE), chunk("IHDR", header), chunk("PLTE", palette), chunk("IDAT", packed), chunk("IEND", Buffer.alloc(0))]);
  return made.length < png.length ? made : png;
}

const colourAt = (rows, at) => (rows[at] << 16) | (rows[at + 1] << 8) | rows[at + 2];

/** The commonest colours, and which of them is nearest to any. The rest are shades at the edges of letters. */
function reduced(rows, size) {
  const counts = new Map();
  for (let at = 0; at < rows.length; at += size) counts.set(colourAt(rows, at), (counts.get(colourAt(rows, at)) ?? 0) + 1);
  const common = [...counts].sort((one, other) => other[1] - one[1]).map(([colour]) => colour);
  // The flat ones as they are; then the commonest of each corner of the colours, so that a small green dot stays green.
  const corners = new Map(common.toReversed().map((colour) => [colour & 0xe0e0e0, colour]));
  const kept = [...new Set([...common.slice(0, 60), ...corners.values(), ...common])].slice(0, 256);
  const known = new Map(kept.map((colour, index) => [colour, index]));
  const apart = (one, other) => [16, 8, 0].reduce((sum, shift) => sum + (((one >> shift) & 255) - ((other >> shift) & 255)) ** 2, 0);
  const indexOf = (colour) => {
    if (!known.has(colour)) known.set(colour, kept.reduce((best, other, index) => (apart(colour, other) < apart(colour, kept[best]) ? index : best), 0));
    return known.get(colour);
  };
  return { palette: Buffer.from(kept.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255])), indexOf };
}

function read(png) {
  const chunks = [];
  for (let at = SIGNATURE; at < png.length; ) {
    const length = png.readUInt32BE(at);
    chunks.push({ type: png.toString("latin1", at + 4, at + 8), data: png.subarray(at + 8, at + 8 + length) });
    at += length + 12;
  }
  return chunks;
}

function unfiltered(data, stride, height, size) {
  const out = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y += 1) {
    const filter = data[y * (stride + 1)];
    for (let x = 0; x < stride; x += 1) {
      const left = x >= size ? out[y * stride + x - size] : 0;
      const up = y > 0 ? out[(y - 1) * stride + x] : 0;
      const corner = x >= size && y > 0 ? out[(y - 1) * stride + x - size] : 0;
      const add = [0, left, up, (left + up) >> 1, filter === 4 ? paeth(left, up, corner) : 0][filter];
      out[y * stride + x] = data[y * (stride + 1) + 1 + x] + add;
    }
  }
  return out;
}

function paeth(left, up, corner) {
  const guess = left + up - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const made = Buffer.alloc(body.length + 8);
  made.writeUInt32BE(data.length, 0);
  body.copy(made, 4);
  made.writeUInt32BE(crc(body), body.length + 4);
  return made;
}

function crc(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  }
  return (value ^ 0xffffffff) >>> 0;
}
