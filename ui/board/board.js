// The board: a picture with its patches, the N × N matrix of one attention map, and a thumbnail
// of every map. Python sends all of it once, as bytes; everything a visitor does is drawn here at
// once, and only a new choice (token, layer, head) is reported back, a moment later.
//
// View knows what is shown, Drawing puts it on canvases, Board lives on the page.
//
// Words: a token is [CLS] or a patch. A map is N × N, row = query, column = key. "from": the
// chosen token is the query, its row lies over the picture; "to": it is the key, its column does.
//
// The data attributes of the root say what is shown, for tests and for tools that assist: token,
// layer, head, pair, hover (query,key), value, caption, direction, scale, thumbs, overlay,
// playing, theme, ready.

const REPORT_MS = 150; // a choice is reported when the hand rests
const SPEAK_MS = 400; // screen readers get the caption when the pointer rests
const STEP_MS = 900; // one layer, while playing
const CALM_STEP_MS = 1800; // the same for visitors who asked for less motion
const BAND = 34; // height above the picture and the plots: [CLS], axis names, head numbers
const GUTTER = 40; // width left of the matrix, as in board.css
const CLS_GAP = 3; // between [CLS] and the patches in the matrix
const LABELS = 48; // width left of the thumbnails
const MAX_SIDE = 480; // a picture wider than this explains nothing more
const VEIL = 0.45; // the overlay's opacity where a value is 0, as a share of its strength
const FLAT = 4; // a row's own scale ends at 4 / N at least
const SMOOTH_FROM = 129; // pixels of a picture's side; of smaller ones the pixels stay square

// Streamlit calls the default export again at every rerun; the board of an element stays the same.
const boards = new WeakMap();

// How a visitor likes to look (direction, scale, …), by key: it survives a change of page.
const habits = new Map();

export default function ({ parentElement, data, setStateValue }) {
  const root = parentElement.querySelector(".board");
  if (!boards.has(root)) boards.set(root, new Board(root));
  const board = boards.get(root);
  board.receive(data, setStateValue);
  // Streamlit also runs this when one render overtakes another, with the board still in place.
  return () => root.isConnected || board.close();
}

// ---- reading the message ------------------------------------------------------------------------

function readMessage(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const body = bytes.slice(4 + length).buffer; // copied, so that typed arrays find it aligned
  return { header, body };
}

/** Lines of rounded numbers: a value is step / full × the line's own maximum. */
class Block {
  constructor(spec, header, body) {
    Object.assign(this, spec);
    const signed = header.scale === "diverging";
    const kinds = signed ? { 8: Int8Array, 16: Int16Array } : { 8: Uint8Array, 16: Uint16Array };
    this.full = 2 ** (this.bits - (signed ? 1 : 0)) - 1;
    this.count = (this.layers[1] - this.layers[0]) * (this.heads[1] - this.heads[0]) * this.lines;
    this.steps = new kinds[this.bits](body, header.blobs[this.name][0], this.count * this.size);
    this.lineMax = new Float32Array(body, header.blobs[`${this.name}_max`][0], this.count);
  }

  covers(layer, head) {
    const [l0, l1] = this.layers;
    const [h0, h1] = this.heads;
    return layer >= l0 && layer < l1 && head >= h0 && head < h1;
  }

  line(layer, head, line) {
    const heads = this.heads[1] - this.heads[0];
    return ((layer - this.layers[0]) * heads + head - this.heads[0]) * this.lines + line;
  }

  at(layer, head, line, index) {
    const n = this.line(layer, head, line);
    return (this.steps[n * this.size + index] / this.full) * this.lineMax[n];
  }

  maximum(layer, head) {
    const start = this.line(layer, head, 0);
    return this.lineMax.subarray(start, start + this.lines).reduce((a, b) => Math.max(a, b), 0);
  }
}

/** The maps as far as they were sent: exact numbers where there are some, coarse ones elsewhere. */
class Maps {
  constructor(header, body) {
    Object.assign(this, header.maps);
    this.tokens = header.tokens;
    for (const spec of this.blocks) this[spec.name] = new Block(spec, header, body);
  }

  /** The block that holds a whole map: its own, else the coarse stand-in. */
  block(layer, head) {
    return this.values.covers(layer, head) ? this.values : this.small;
  }

  value(layer, head, query, key) {
    if (this.row?.covers(layer, head)) {
      if (query === this.token) return this.row.at(layer, head, 0, key);
      if (key === this.token) return this.column.at(layer, head, 0, query);
    }
    const block = this.block(layer, head);
    const cell = (token) => Math.floor((token * block.size) / this.tokens);
    return block.at(layer, head, cell(query), cell(key));
  }

  isExact(layer, head, query, key) {
    const line = query === this.token || key === this.token;
    if (line && this.row?.covers(layer, head)) return true;
    return (
      this.values.covers(layer, head) && this.values.size === this.tokens && this.values.bits === 16
    );
  }

  /** True if a token's row and column are there, patch by patch. */
  knowsLines(layer, head, token) {
    if (this.values.covers(layer, head) && this.values.size === this.tokens) return true;
    return token === this.token && this.row.covers(layer, head);
  }

  /** True if that holds for the chosen token in every map. */
  get hasAllLines() {
    const { layers, heads } = this.row ?? this.values;
    return (
      layers[1] - layers[0] === this.maximum.length &&
      heads[1] - heads[0] === this.maximum[0].length
    );
  }

  /** A token's row ("from") or column ("to"). */
  line(layer, head, token, direction) {
    const line = new Float64Array(this.tokens);
    for (let other = 0; other < this.tokens; other++) {
      line[other] =
        direction === "from"
          ? this.value(layer, head, token, other)
          : this.value(layer, head, other, token);
    }
    return line;
  }
}

// ---- colours ------------------------------------------------------------------------------------

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function luminance([r, g, b]) {
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}

/** 256 colours between evenly spaced stops, as [r, g, b]. */
function ramp(stops) {
  const colours = stops.map(rgb);
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (colours.length - 1);
    const low = Math.min(Math.floor(at), colours.length - 2);
    return colours[low].map((c, j) => Math.round(c + (colours[low + 1][j] - c) * (at - low)));
  });
}

/** Any CSS colour → [r, g, b], by asking the browser. */
function resolveColour(css) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillStyle = css;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/** A bitmap of one pixel per cell; shade(x, y) is between 0 and 1 along the ramp. */
function paint(width, height, colours, shade) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 4) {
      const [r, g, b] = colours[Math.round(255 * clampUnit(shade(x, y)))];
      image.data[at] = r;
      image.data[at + 1] = g;
      image.data[at + 2] = b;
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// ---- words and numbers --------------------------------------------------------------------------

function format(value, decimals) {
  return value.toFixed(decimals).replace(/^-/, "−");
}

function entropyOf(line) {
  let sum = 0;
  for (const p of line) if (p > 0) sum -= p * Math.log2(p);
  return sum;
}

function slug(text) {
  return text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

// ---- geometry -----------------------------------------------------------------------------------

/** Where tokens lie along an axis of the matrix: [CLS] first, a little apart and never too thin. */
function axis(length, tokens, hasCls) {
  const plain = length / tokens;
  const cls = hasCls ? Math.max(plain, 6) : 0;
  const start = hasCls ? cls + CLS_GAP : 0;
  const patches = tokens - (hasCls ? 1 : 0);
  const cell = (length - start) / patches;
  return {
    start,
    cls,
    cell,
    span(token) {
      if (hasCls && token === 0) return [0, cls];
      return [start + (token - (hasCls ? 1 : 0)) * cell, cell];
    },
    token(at) {
      if (at < 0 || at >= length) return null;
      if (hasCls && at < start) return 0;
      return Math.min(patches - 1, Math.floor((at - start) / cell)) + (hasCls ? 1 : 0);
    },
  };
}

// ---- view: what is chosen and shown: words and numbers, nothing drawn ---------------------------

class View {
  choice() {
    const { token, layer, head, pair } = this;
    return { token, layer, head, pair };
  }

  /** The (query, key) to light up: under the pointer, else the marked one. */
  litPair() {
    if (this.hover?.pair) return this.hover.pair;
    if (this.hover?.token !== undefined && this.maps) return this.pairWith(this.hover.token);
    return this.hover ? null : this.pair;
  }

  pairWith(other) {
    return this.habit.direction === "from" ? [this.token, other] : [other, this.token];
  }

  firstPatch() {
    return this.header.has_cls ? 1 : 0;
  }

  isSingle() {
    return this.header.layers * this.header.heads === 1;
  }

  // -- words --

  name(token) {
    const { grid, has_cls: hasCls } = this.header;
    if (hasCls && token === 0) return "[CLS]";
    const patch = token - this.firstPatch();
    const row = Math.floor(patch / grid[1]);
    return `patch ${patch + 1} (row ${row}, column ${patch % grid[1]})`;
  }

  shortName(token) {
    return this.header.has_cls && token === 0 ? "[CLS]" : `${token - this.firstPatch() + 1}`;
  }

  print(query, key) {
    const { layer, head, maps } = this;
    const number = format(maps.value(layer, head, query, key), maps.decimals);
    return maps.isExact(layer, head, query, key) ? number : `≈ ${number}`;
  }

  /** The caption in pieces [text, role]. */
  captionPieces() {
    const { hover, header, maps } = this;
    if (!maps) {
      const chosen = [[this.name(this.token), "query"]];
      return hover
        ? [...chosen, [" · under the pointer: "], [this.name(hover.token), "key"]]
        : chosen;
    }
    if (hover?.layer !== undefined) return [[this.aboutMap(hover.layer, hover.head)]];
    const lit = this.litPair();
    const [query, key] = lit ?? this.strongest();
    const joint = header.row_label === header.column_label ? " and " : " → ";
    const pieces = [
      [this.name(query), "query"],
      [joint],
      [this.name(key), "key"],
      [": "],
      [this.print(query, key), "value"],
    ];
    if (!lit) pieces.push([`, the largest of this ${this.lineWord()}`]);
    return pieces;
  }

  caption() {
    return this.captionPieces()
      .map(([piece]) => piece)
      .join("");
  }

  maxWord() {
    return this.header.scale === "diverging" ? "max |value|" : "max";
  }

  lineWord() {
    return this.habit.direction === "from" ? "row" : "column";
  }

  aboutMap(layer, head) {
    const { maximum, entropy, decimals } = this.maps;
    const top = format(maximum[layer][head], decimals);
    const bits = Math.log2(this.header.tokens).toFixed(2);
    const spread = entropy
      ? ` · mean entropy ${entropy[layer][head].toFixed(2)} of ${bits} bits`
      : "";
    const where = this.isSingle() ? "this map" : `layer ${layer}, head ${head}`;
    return `${where}: ${this.maxWord()} ${top}${spread}`;
  }

  /** The pair with the largest value on the chosen token's line; never a signed map's diagonal. */
  strongest() {
    const line = this.line();
    let best = null;
    for (let other = 0; other < line.length; other++) {
      if (this.header.scale === "diverging" && other === this.token && line.length > 1) continue;
      if (best === null || line[other] > line[best]) best = other;
    }
    return this.pairWith(best);
  }

  line(layer = this.layer, head = this.head) {
    return this.maps.line(layer, head, this.token, this.habit.direction);
  }

  stats() {
    const { header, maps, layer, head } = this;
    const line = this.line();
    const top = format(largest(line), maps.decimals);
    const isRow = this.habit.direction === "from";
    const spread = maps.entropy && isRow ? `, entropy ${entropyOf(line).toFixed(2)} bits` : "";
    const texts = [
      `this ${this.lineWord()}: ${this.maxWord()} ${top}${spread}`,
      this.aboutMap(layer, head),
    ];
    if (maps.entropy)
      texts.push(`1/N = 1/${header.tokens} = ${format(1 / header.tokens, maps.decimals)}`);
    const words = { line: `each ${this.lineWord()}`, map: "this map", all: "all maps" };
    texts.push(`colours: ${words[this.habit.scale]}`);
    return texts;
  }

  tensorName() {
    const { tensor_name: name } = this.header;
    return name.replaceAll("{layer}", this.layer).replaceAll("{head}", this.head);
  }

  // -- scales --

  shade(value, limit) {
    const share = limit > 0 ? value / limit : 0;
    return this.header.scale === "diverging" ? 0.5 + share / 2 : share;
  }

  /** The value at the end of the colours of one map; per line, null. */
  mapLimit(layer, head) {
    const { maximum } = this.maps;
    if (this.habit.scale === "all") return Math.max(...maximum.flat());
    return this.habit.scale === "map" ? maximum[layer][head] : null;
  }

  /** The same for the chosen token's line. */
  lineLimit(layer = this.layer, head = this.head) {
    return this.mapLimit(layer, head) ?? this.ownLimit(this.line(layer, head));
  }

  /** What stands at the two ends of the colour bar. */
  ends() {
    const top = format(this.lineLimit(), this.maps.decimals);
    return this.header.scale === "diverging" ? [`−${top}`, `+${top}`] : ["0", top];
  }

  /** A line's largest value; for attention at least FLAT / N, so that even attention looks even. */
  ownLimit(line) {
    const floor = this.maps.entropy ? Math.min(1, FLAT / this.header.tokens) : 0;
    return Math.max(floor, largest(line));
  }
}

// ---- drawing: the same on canvases --------------------------------------------------------------

class Drawing extends View {
  // -- sizes --

  pictureSize(room) {
    const { aspect } = this.header;
    const width = Math.max(60, Math.floor(Math.min(room, MAX_SIDE, MAX_SIDE * aspect)));
    return { width, height: Math.round(width / aspect) };
  }

  /** Thumbnails as high as the picture together, unless that makes them too small to tell apart. */
  headsSize(room, height) {
    const { layers, heads } = this.header;
    const gap = Math.max(layers, heads) > 8 ? 3 : 6;
    const byWidth = (room - LABELS) / heads - gap;
    const byHeight = Math.max(24, (height + gap) / layers - gap);
    const side = Math.max(6, Math.floor(Math.min(byWidth, byHeight, 110)));
    const pitch = side + gap;
    return { side, pitch, width: LABELS + heads * pitch, height: BAND + layers * pitch };
  }

  partSize(name) {
    const { picture, matrix, heads } = this.layout;
    if (name === "picture") return [picture.width, picture.top + picture.height + 1];
    if (name === "matrix") return [GUTTER + matrix.side + 1, BAND + matrix.side + 1];
    return [heads.width, heads.height];
  }

  // -- bitmaps: one pixel a cell --

  mapBitmap(layer, head, block = this.maps.block(layer, head)) {
    const { size } = block;
    const at = (row, column) => block.at(layer, head, row, column);
    let limit = this.mapLimit(layer, head);
    // Averages of neighbours are smaller than the map's maximum: they get a scale of their own.
    if (this.habit.scale === "map" && size < this.header.tokens) limit = block.maximum(layer, head);
    if (limit !== null)
      return paint(size, size, this.colours, (x, y) => this.shade(at(y, x), limit));
    const isRow = this.habit.direction === "from";
    const cells = [...Array(size).keys()];
    const limits = cells.map((i) => this.ownLimit(cells.map((j) => (isRow ? at(i, j) : at(j, i)))));
    return paint(size, size, this.colours, (x, y) => this.shade(at(y, x), limits[isRow ? y : x]));
  }

  /** The chosen token's line as a picture of the patches. */
  tokenBitmap(layer, head) {
    const line = this.line(layer, head);
    const limit = this.lineLimit(layer, head);
    const [rows, columns] = this.header.grid;
    const first = this.firstPatch();
    return paint(columns, rows, this.colours, (x, y) =>
      this.shade(line[first + y * columns + x], limit),
    );
  }

  currentBitmap() {
    const { scale, direction } = this.habit;
    const look = [this.layer, this.head, scale, scale === "line" && direction].join();
    if (!this.matrixBitmap || this.matrixLook !== look)
      this.matrixBitmap = this.mapBitmap(this.layer, this.head);
    this.matrixLook = look;
    return this.matrixBitmap;
  }

  thumbsOfToken() {
    return this.habit.thumbs === "token" && this.maps.hasAllLines;
  }

  /** As drawn before, if nothing changed; the last one while Python's numbers are on their way. */
  thumbnail(layer, head) {
    const name = `${layer},${head}`;
    const ofToken = this.thumbsOfToken();
    if (ofToken && !this.maps.knowsLines(layer, head, this.token)) return this.outdated?.get(name);
    if (!this.thumbnails.has(name)) {
      // Where some maps are only there as coarse stand-ins, all are drawn so, and can be compared.
      const block = this.maps.small ?? this.maps.values;
      const bitmap = ofToken ? this.tokenBitmap(layer, head) : this.mapBitmap(layer, head, block);
      this.thumbnails.set(name, bitmap);
    }
    return this.thumbnails.get(name);
  }

  // -- the picture --

  patchRect(token) {
    const { width, height, top } = this.layout.picture;
    const [rows, columns] = this.header.grid;
    const patch = token - this.firstPatch();
    const [row, column] = [Math.floor(patch / columns), patch % columns];
    const edge = (i, n, length) => Math.round((i * length) / n);
    const [x, y] = [edge(column, columns, width), edge(row, rows, height)];
    return [x, top + y, edge(column + 1, columns, width) - x, edge(row + 1, rows, height) - y];
  }

  chipRect() {
    return [1, 3, 58, 24];
  }

  /** An outline at the picture's edge would be cut in half: it moves in. */
  insidePicture([x, y, width, height]) {
    const { width: right, height: bottom, top } = this.layout.picture;
    const [left, upper] = [Math.max(x, 1.5), Math.max(y, top + 1.5)];
    return [
      left,
      upper,
      Math.min(x + width, right - 1.5) - left,
      Math.min(y + height, top + bottom - 1.5) - upper,
    ];
  }

  draw(name, context) {
    if (name === "picture") this.drawPicture(context);
    else if (name === "matrix") this.drawMatrix(context);
    else this.drawHeads(context);
  }

  text(context, text, x, y, { colour = "muted", size = 11, align = "left", weight = 400 } = {}) {
    context.font = `${weight} ${size}px ${this.font}`;
    context.fillStyle = this.palette[colour];
    context.textAlign = align;
    context.textBaseline = "middle";
    context.fillText(text, x, y);
  }

  drawPicture(context) {
    const { width, height, top } = this.layout.picture;
    context.fillStyle = this.palette.panel;
    context.fillRect(0, top, width, height);
    if (this.bitmap) {
      const { bitmap } = this;
      context.imageSmoothingEnabled = Math.max(bitmap.width, bitmap.height) >= SMOOTH_FROM;
      context.imageSmoothingQuality = "high";
      context.drawImage(bitmap, 0, top, width, height);
    }
    const line = this.maps && this.line();
    if (line) this.drawOverlay(context, line);
    this.drawGrid(context);
    if (this.header.has_cls) this.drawChip(context, line);
    this.drawMarks(context);
  }

  drawOverlay(context, line) {
    const { width, height, top } = this.layout.picture;
    const limit = this.lineLimit();
    const strength = this.habit.overlay / 100;
    context.save();
    // The picture turns grey under the overlay, so that every colour left is one of the scale's.
    context.globalAlpha = strength;
    context.globalCompositeOperation = "saturation";
    context.fillStyle = "#808080";
    context.fillRect(0, top, width, height);
    context.globalCompositeOperation = "source-over";
    for (let token = this.firstPatch(); token < line.length; token++) {
      // Small values veil the picture less, so that it stays readable between the large ones.
      const share = limit > 0 ? clampUnit(Math.abs(line[token]) / limit) : 0;
      context.globalAlpha = strength * (VEIL + (1 - VEIL) * Math.sqrt(share));
      context.fillStyle = this.colour(line[token], limit);
      context.fillRect(...this.patchRect(token));
    }
    context.restore();
  }

  colour(value, limit) {
    return `rgb(${this.colours[Math.round(255 * clampUnit(this.shade(value, limit)))]})`;
  }

  drawGrid(context) {
    const { width, height, top } = this.layout.picture;
    const [rows, columns] = this.header.grid;
    context.save();
    context.fillStyle = this.palette.ground;
    context.globalAlpha = width / columns < 12 ? 0.3 : 0.6;
    for (let i = 1; i < columns; i++)
      context.fillRect(Math.round((i * width) / columns) - 0.5, top, 1, height);
    for (let i = 1; i < rows; i++)
      context.fillRect(0, top + Math.round((i * height) / rows) - 0.5, width, 1);
    context.restore();
  }

  drawChip(context, line) {
    const [x, y, width, height] = this.chipRect();
    const fill = line ? this.colour(line[0], this.lineLimit()) : this.palette.panel;
    context.beginPath();
    context.roundRect(x, y, width, height, 4);
    context.fillStyle = fill;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = this.palette.line;
    context.stroke();
    const bright = luminance(line ? fill.match(/\d+/g).map(Number) : rgb(fill)) > 0.5;
    context.fillStyle = bright ? "#1c1b1a" : "#ffffff";
    context.font = `600 12px ${this.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText("[CLS]", x + width / 2, y + height / 2 + 0.5);
  }

  /** Query in teal, key in pink; the chosen token stays marked, thinner, while others are lit. */
  drawMarks(context) {
    const lit = this.maps ? this.litPair() : null;
    const chosen = this.habit.direction === "from" ? "query" : "key";
    if (!lit?.includes(this.token))
      this.drawMark(context, this.token, this.maps ? chosen : "query", lit ? 1.5 : 2.5);
    if (!this.maps && this.hover) this.drawMark(context, this.hover.token, "key", 2);
    if (!lit) return;
    const [query, key] = lit;
    this.drawMark(context, query, "query", 2.5);
    this.drawMark(context, key, "key", 2.5, query === key ? 3 : 0);
  }

  drawMark(context, token, role, thickness, inset = 0) {
    const isChip = this.header.has_cls && token === 0;
    const [x, y, width, height] = isChip
      ? this.chipRect()
      : this.insidePicture(this.patchRect(token));
    const outline = (lineWidth, colour) => {
      context.beginPath();
      context.roundRect(
        x + inset,
        y + inset,
        width - 2 * inset,
        height - 2 * inset,
        isChip ? 4 : 1,
      );
      context.lineWidth = lineWidth;
      context.strokeStyle = colour;
      context.stroke();
    };
    outline(thickness + 2, this.palette.ground); // a halo, so that it shows on any picture
    outline(thickness, this.palette[role]);
  }

  // -- the matrix --

  drawMatrix(context) {
    const { side } = this.layout.matrix;
    const isRow = this.habit.direction === "from";
    const lit = this.litPair();
    const [query, key] = lit ?? (isRow ? [this.token, null] : [null, this.token]);
    const names = { colour: "key", size: 12, weight: 600 };
    this.text(context, `${this.header.column_label} →`, GUTTER + side, 8, {
      ...names,
      align: "right",
    });
    context.save();
    context.translate(8, BAND + side);
    context.rotate(-Math.PI / 2);
    this.text(context, `← ${this.header.row_label}`, 0, 0, { ...names, colour: "query" });
    context.restore();

    context.save();
    context.translate(GUTTER, BAND);
    this.drawCells(context, this.currentBitmap());
    this.drawTicks(context, "query", query);
    this.drawTicks(context, "key", key);
    // The chosen token's line stays marked while the pointer is elsewhere, and a patch under the
    // pointer lights both its row and its column.
    for (const token of new Set([this.token, this.hover?.token ?? this.token])) {
      if (!(isRow ? query === token : key === token))
        this.drawBand(context, isRow ? "query" : "key", token, true);
    }
    if (query !== null) this.drawBand(context, "query", query);
    if (key !== null) this.drawBand(context, "key", key);
    if (lit) this.drawCell(context, query, key);
    context.restore();
  }

  drawCells(context, bitmap) {
    const { side, axis } = this.layout.matrix;
    const { tokens, has_cls: hasCls } = this.header;
    context.imageSmoothingEnabled = axis.cell * this.density < 1 || bitmap.width < tokens;
    context.imageSmoothingQuality = "high";
    context.strokeStyle = this.palette.line;
    context.lineWidth = 1;
    const pieces =
      hasCls && bitmap.width === tokens
        ? [
            [0, 1, 0, axis.cls],
            [1, tokens - 1, axis.start, side - axis.start],
          ]
        : [[0, bitmap.width, 0, side]];
    for (const [sourceY, sourceHeight, y, height] of pieces) {
      for (const [sourceX, sourceWidth, x, width] of pieces) {
        if (sourceWidth && sourceHeight) {
          context.drawImage(
            bitmap,
            sourceX,
            sourceY,
            sourceWidth,
            sourceHeight,
            x,
            y,
            width,
            height,
          );
          context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
        }
      }
    }
  }

  /** Numbers along an axis, where rows of the picture begin; the lit token's name in its colour. */
  drawTicks(context, role, lit) {
    const { axis } = this.layout.matrix;
    const { grid, tokens, has_cls: hasCls } = this.header;
    const isRow = role === "query";
    const middle = (token) => axis.span(token)[0] + axis.span(token)[1] / 2;
    const put = (token, options) => {
      const [x, y] = isRow ? [-6, middle(token)] : [middle(token), -9];
      this.text(context, this.shortName(token), x, y, {
        align: isRow ? "right" : "center",
        ...options,
      });
    };
    const room = isRow ? 12 : 22;
    const all = axis.cell >= 26;
    const every = all ? 1 : Math.ceil(26 / (axis.cell * grid[1])) * grid[1];
    // [CLS] is named on the left alone, where there is room for it.
    const taken = lit === null ? [] : [middle(lit)];
    if (hasCls && isRow && lit !== 0) {
      put(0, { size: 10 });
      taken.push(middle(0));
    }
    for (let token = this.firstPatch(); token < tokens; token += every) {
      if (taken.every((place) => Math.abs(place - middle(token)) >= room)) put(token, { size: 10 });
    }
    if (lit !== null) put(lit, { colour: role, weight: 600 });
  }

  drawBand(context, role, token, faint = false) {
    const { side, axis } = this.layout.matrix;
    const [start, length] = axis.span(token);
    const isRow = role === "query";
    context.save();
    context.globalAlpha = faint ? 0.45 : 1;
    context.strokeStyle = this.palette[role];
    context.lineWidth = faint ? 1 : 1.5;
    const [a, b] = [start - 0.75, length + 1.5];
    if (isRow) context.strokeRect(-0.75, a, side + 1.5, b);
    else context.strokeRect(a, -0.75, b, side + 1.5);
    context.restore();
  }

  drawCell(context, query, key) {
    const { axis } = this.layout.matrix;
    const [y, height] = axis.span(query);
    const [x, width] = axis.span(key);
    context.strokeStyle = this.palette.ground;
    context.lineWidth = 3;
    context.strokeRect(x - 1, y - 1, width + 2, height + 2);
    context.strokeStyle = this.palette.ink;
    context.lineWidth = 1.5;
    context.strokeRect(x - 1, y - 1, width + 2, height + 2);
  }

  // -- the heads --

  drawHeads(context) {
    const { side, pitch } = this.layout.heads;
    const { layers, heads } = this.header;
    const { scale, direction } = this.habit;
    const look = [
      this.thumbsOfToken(),
      scale,
      direction,
      this.thumbsOfToken() && this.token,
    ].join();
    if (this.thumbnailLook !== look) {
      this.outdated = this.thumbnails;
      this.thumbnails = new Map();
    }
    this.thumbnailLook = look;
    const roomy = side >= 40;
    if (!roomy) this.text(context, "head", LABELS - 8, BAND - 9, { align: "right", size: 10 });
    for (let head = 0; head < heads; head++) {
      const on = head === this.head;
      const label = roomy ? `head ${head}` : `${head}`;
      const x = LABELS + head * pitch + side / 2;
      this.text(context, label, x, BAND - 9, {
        align: "center",
        colour: on ? "ink" : "muted",
        weight: on ? 600 : 400,
      });
    }
    for (let layer = 0; layer < layers; layer++) {
      const on = layer === this.layer;
      const y = BAND + layer * pitch + side / 2;
      this.text(context, `layer ${layer}`, LABELS - 8, y, {
        align: "right",
        colour: on ? "ink" : "muted",
        weight: on ? 600 : 400,
      });
      for (let head = 0; head < heads; head++) this.drawThumbnail(context, layer, head);
    }
  }

  drawThumbnail(context, layer, head) {
    const { side, pitch } = this.layout.heads;
    const [x, y] = [LABELS + head * pitch, BAND + layer * pitch];
    const bitmap = this.thumbnail(layer, head);
    context.globalAlpha = this.thumbnails.has(`${layer},${head}`) ? 1 : 0.35;
    context.imageSmoothingEnabled = bitmap?.width > side * this.density;
    context.imageSmoothingQuality = "high";
    if (bitmap) context.drawImage(bitmap, x, y, side, side);
    context.globalAlpha = 1;
    const pointed = this.hover?.layer === layer && this.hover?.head === head;
    const on = layer === this.layer && head === this.head;
    context.lineWidth = on ? 2 : 1;
    context.strokeStyle = on || pointed ? this.palette.ink : this.palette.line;
    const out = on ? 1.5 : 0.5;
    context.strokeRect(x - out, y - out, side + 2 * out, side + 2 * out);
  }

  // -- all in one --

  composed() {
    const density = 2;
    const margin = 24;
    const names = this.header.parts;
    const sizes = names.map((name) => this.partSize(name));
    const width = Math.max(
      sizes.reduce((sum, [w]) => sum + w + margin, margin),
      640,
    );
    const plots = Math.max(...sizes.map(([, h]) => h));
    const canvas = new OffscreenCanvas(width * density, (plots + 2 * margin + 96) * density);
    const context = canvas.getContext("2d");
    context.scale(density, density);
    context.fillStyle = this.palette.ground;
    context.fillRect(0, 0, canvas.width, canvas.height);
    let x = margin;
    names.forEach((name, i) => {
      context.save();
      context.translate(x, margin);
      this.draw(name, context);
      context.restore();
      x += sizes[i][0] + margin;
    });
    this.composeWords(context, margin, margin + plots + 24, width - 2 * margin);
    return canvas;
  }

  composeWords(context, x, y, width) {
    this.text(context, this.caption(), x, y, { colour: "ink", size: 14 });
    if (!this.maps) return;
    const bar = Math.min(240, width / 3);
    const gradient = context.createLinearGradient(x, 0, x + bar, 0);
    const stops = this.palette[this.header.scale];
    stops.forEach((stop, i) => gradient.addColorStop(i / (stops.length - 1), stop));
    context.fillStyle = gradient;
    context.fillRect(x, y + 20, bar, 8);
    context.strokeStyle = this.palette.line;
    context.strokeRect(x - 0.5, y + 19.5, bar + 1, 9);
    const [low, high] = this.ends();
    this.text(context, low, x, y + 38);
    this.text(context, this.header.value_name, x + bar / 2, y + 38, { align: "center" });
    this.text(context, high, x + bar, y + 38, { align: "right" });
    this.text(context, this.tensorName(), x, y + 60, { colour: "ink" });
    this.text(context, this.stats().join("   "), x, y + 78);
  }
}

// ---- board: the part that lives on the page: messages, sizes, input, reports --------------------

class Board extends Drawing {
  constructor(root) {
    super();
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.parts = {};
    for (const name of ["picture", "matrix", "heads"]) {
      const figure = this.find(`[data-part=${name}]`);
      this.parts[name] = { figure, canvas: figure.querySelector("canvas") };
    }
    this.hover = null; // {token}, {pair: [query, key]} or {layer, head}
    this.thumbnails = new Map(); // as drawn last, until their look changes
    this.dirty = new Set();
    this.onscreen = new Set();
    this.listenToCanvases();
    this.listenToControls();
    this.watchPage();
  }

  // -- messages from Python --

  receive(bytes, setStateValue) {
    this.setStateValue = setStateValue;
    const theme = getComputedStyle(this.root).getPropertyValue("--st-background-color");
    const unchanged = this.bytes && sameBytes(bytes, this.bytes) && theme === this.theme;
    if (unchanged) return;
    const { header, body } = readMessage(bytes);
    const previous = this.header;
    Object.assign(this, { bytes, theme, header });
    const another = previous?.key !== header.key;
    if (another) this.begin();
    if (another || previous.serial !== header.serial) this.obey(header.imposed);
    this.maps = header.maps && new Maps(header, body);
    const [at, length] = header.blobs.picture;
    this.loadPicture(new Uint8Array(body, at, length));
    this.arrange();
    this.applyTheme();
    this.resize();
    this.refresh();
  }

  /** Another board in the same place, after a change of page: forget what was seen of the last. */
  begin() {
    this.bitmap = null;
    const { key } = this.header;
    if (!habits.has(key)) {
      habits.set(key, { direction: "from", scale: "line", thumbs: "token", overlay: 65 });
    }
    this.habit = habits.get(key);
  }

  /** The page's choice replaces the visitor's. */
  obey([token, layer, head]) {
    clearTimeout(this.reporting);
    this.stop({ report: false });
    Object.assign(this, { token, layer, head, pair: null, hover: null });
  }

  async loadPicture(file) {
    if (this.bitmap && sameBytes(file, this.file)) return;
    this.file = file;
    // The last picture stays until the new one is decoded, so that nothing flickers.
    const bitmap = await createImageBitmap(new Blob([file]));
    if (this.file !== file) return;
    this.bitmap = bitmap;
    this.redraw("picture");
  }

  /** Show the parts and the controls that this board has a use for. */
  arrange() {
    const { parts, layers, heads, value_name: unit, grid, has_cls: hasCls } = this.header;
    for (const [name, { figure }] of Object.entries(this.parts))
      figure.hidden = !parts.includes(name);
    this.find(".parts").dataset.parts = Object.keys(this.parts)
      .filter((name) => parts.includes(name))
      .join(" ");
    for (const selector of [".strip", ".stats"]) this.find(selector).hidden = !this.maps;
    // Rows and columns of the same things (positions against positions) read the same both ways.
    this.find("[data-switch=direction]").hidden =
      !this.maps || this.header.row_label === this.header.column_label;
    this.find("[data-part=picture] .head").hidden = !this.maps;
    this.find(".overlay").hidden = !parts.includes("picture");
    this.find(".play").hidden = layers === 1;
    this.find(".scale [value=all]").hidden = this.isSingle();
    this.find("[data-switch=thumbs]").hidden = !this.maps?.hasAllLines;
    this.find(".unit").textContent = unit;
    this.find(".overlay input").value = this.habit.overlay;

    const play = layers > 1 && parts.includes("heads") ? " Space plays through the layers." : "";
    const home = hasCls ? " Home goes to [CLS]." : "";
    this.parts.picture.canvas.ariaLabel =
      `The picture in ${grid[0]} by ${grid[1]} patches. ` +
      `Arrow keys move the chosen token.${home}${play}`;
    this.parts.matrix.canvas.ariaLabel =
      `Matrix of the ${unit}, rows ${this.header.row_label}, columns ${this.header.column_label}. ` +
      `Arrow keys move over the cells, Enter chooses one.${play}`;
    this.parts.heads.canvas.ariaLabel =
      `All maps, ${layers} layers by ${heads} heads. ` +
      `Up and down change the layer, left and right the head.${play}`;
  }

  // -- the page around --

  watchPage() {
    this.resizeWhenReady = () => this.header && this.resize();
    this.sizes = new ResizeObserver(this.resizeWhenReady);
    this.sizes.observe(this.find(".parts"));
    window.addEventListener("resize", this.resizeWhenReady); // the density of pixels may change
    // What is out of sight is drawn when it comes near.
    this.views = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          const { part } = target.closest("[data-part]").dataset;
          if (isIntersecting) this.onscreen.add(part);
          else this.onscreen.delete(part);
        }
        this.watching = true;
        this.schedule();
      },
      { rootMargin: "200px" },
    );
    for (const { canvas } of Object.values(this.parts)) this.views.observe(canvas);
  }

  close() {
    this.stop({ report: false });
    this.sizes.disconnect();
    this.views.disconnect();
    window.removeEventListener("resize", this.resizeWhenReady);
  }

  /** Light or dark, after the page's ground; Streamlit calls us again when that changes. */
  applyTheme() {
    const dark = luminance(resolveColour(this.theme || "#ffffff")) < 0.5;
    this.palette = this.header.palettes[dark ? "dark" : "light"];
    const stops = this.palette[this.header.scale];
    this.colours = ramp(stops);
    this.font = getComputedStyle(this.root).fontFamily;
    this.root.dataset.theme = dark ? "dark" : "light";
    for (const name of ["ground", "panel", "ink", "muted", "line", "query", "key"]) {
      this.root.style.setProperty(`--${name}`, this.palette[name]);
    }
    this.find(".bar").style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
    this.thumbnailLook = null;
    this.matrixBitmap = null;
  }

  resize() {
    this.density = window.devicePixelRatio || 1;
    const wide = (name) => Math.floor(this.parts[name].figure.getBoundingClientRect().width);
    const { tokens, has_cls: hasCls, parts } = this.header;
    const picture = this.pictureSize(parts.includes("picture") ? wide("picture") : MAX_SIDE);
    const room = Math.min(
      wide("matrix") - GUTTER - 1,
      parts.includes("picture") ? picture.height : MAX_SIDE,
    );
    const side = Math.max(tokens > 1 ? 60 : 1, Math.floor(room));
    this.layout = {
      picture: { ...picture, top: this.maps || hasCls ? BAND : 1 },
      matrix: { side, axis: axis(side, tokens, hasCls) },
      heads: this.headsSize(wide("heads"), parts.includes("matrix") ? side : picture.height),
    };
    for (const name of parts) this.fit(name);
    this.redraw("picture", "matrix", "heads");
  }

  fit(name) {
    const [width, height] = this.partSize(name);
    const { canvas } = this.parts[name];
    const [w, h] = [width, height].map((length) => Math.max(1, Math.round(length * this.density)));
    // Setting a canvas's size empties it, even if nothing changes.
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }

  redraw(...names) {
    for (const name of names) this.dirty.add(name);
    this.schedule();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      for (const name of [...this.dirty]) {
        if (!this.onscreen.has(name) || this.parts[name].figure.hidden) continue;
        this.dirty.delete(name);
        this.drawPart(name);
      }
      // Whatever can be seen is drawn.
      if (this.bitmap && this.watching) this.root.dataset.ready = "true";
    });
  }

  drawPart(name) {
    const { canvas } = this.parts[name];
    const context = canvas.getContext("2d");
    context.setTransform(this.density, 0, 0, this.density, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.draw(name, context);
  }

  // -- what is chosen, and telling it --

  choose(change) {
    const before = JSON.stringify(this.choice());
    Object.assign(this, change);
    if (JSON.stringify(this.choice()) === before) return;
    this.refresh();
    this.redraw("picture", "matrix", "heads");
    if (!this.playing) this.report(REPORT_MS);
  }

  report(delay) {
    clearTimeout(this.reporting);
    this.reporting = setTimeout(
      () => this.setStateValue("choice", { ...this.choice(), serial: this.header.serial }),
      delay,
    );
  }

  point(hover) {
    if (JSON.stringify(hover) === JSON.stringify(this.hover)) return;
    this.hover = hover;
    this.refresh();
    this.redraw("picture", "matrix", "heads");
  }

  /** Another way of looking; nothing for Python to know. */
  adopt(habit) {
    Object.assign(this.habit, habit);
    this.refresh();
    this.redraw("picture", "matrix", "heads");
  }

  /** Bring words, buttons and data attributes up to date; canvases follow in the next frame. */
  refresh() {
    const { root, habit, hover, maps } = this;
    for (const group of root.querySelectorAll("[data-switch]")) {
      for (const button of group.children) {
        button.ariaPressed = String(button.value === habit[group.dataset.switch]);
      }
    }
    this.find(".scale [value=line]").textContent = `each ${this.lineWord()}`;
    const place = this.isSingle()
      ? this.header.value_name
      : `layer ${this.layer} · head ${this.head}`;
    this.find(".place").textContent = place;
    this.find(".play-word").textContent = this.playing ? "Pause" : "Play";
    const pieces = this.captionPieces();
    const text = this.caption();
    this.find(".caption").replaceChildren(...pieces.map(([piece, role]) => span(piece, role)));
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => (this.find(".spoken").textContent = text), SPEAK_MS);

    const pair = maps && this.litPair();
    Object.assign(root.dataset, {
      token: this.token,
      layer: this.layer,
      head: this.head,
      pair: this.pair?.join(",") ?? "",
      hover: hover
        ? hover.layer !== undefined
          ? `${hover.layer},${hover.head}`
          : (pair ?? [hover.token]).join(",")
        : "",
      value: pair ? this.print(...pair) : "",
      caption: text,
      direction: habit.direction,
      scale: habit.scale,
      thumbs: habit.thumbs,
      overlay: habit.overlay,
      playing: Boolean(this.playing),
    });
    if (maps) this.refreshLegend(pair);
  }

  refreshLegend(pair) {
    const { maps, header } = this;
    this.find(".tensor").textContent = this.tensorName();
    this.find(".numbers").replaceChildren(...this.stats().map((text) => span(text)));
    const limit = this.lineLimit();
    const signed = header.scale === "diverging";
    const [low, high] = this.ends();
    this.find(".low").textContent = low;
    this.find(".high").textContent = high;
    const place = (selector, value) => {
      const mark = this.find(selector);
      mark.hidden = value === null || !(limit > 0);
      mark.style.left = `${100 * clampUnit(this.shade(value, limit))}%`;
    };
    place(".baseline", maps.entropy ? 1 / header.tokens : signed ? 0 : null);
    place(".pointer", pair ? maps.value(this.layer, this.head, ...pair) : null);
  }

  // -- playing through the layers --

  togglePlay() {
    if (this.playing) this.stop();
    else if (this.header.layers > 1) this.play();
  }

  play() {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.playing = setInterval(() => this.step(), calm ? CALM_STEP_MS : STEP_MS);
    clearTimeout(this.reporting);
    const last = this.layer === this.header.layers - 1;
    this.choose({ layer: last ? 0 : this.layer + 1 });
    this.refresh();
  }

  step() {
    if (this.layer < this.header.layers - 1) this.choose({ layer: this.layer + 1 });
    else this.stop();
  }

  stop({ report = true } = {}) {
    if (!this.playing) return;
    clearInterval(this.playing);
    this.playing = null;
    if (!report) return;
    this.refresh();
    this.report(0);
  }

  // -- input --

  listenToCanvases() {
    for (const [name, { canvas }] of Object.entries(this.parts)) {
      const at = (event) => this.header && this.whatIsAt(name, event.offsetX, event.offsetY);
      const point = (event) => this.point(at(event));
      canvas.addEventListener("pointerdown", point);
      canvas.addEventListener("pointermove", point);
      canvas.addEventListener("pointerleave", () => this.point(null));
      canvas.addEventListener("blur", () => this.point(null));
      canvas.addEventListener("click", (event) => this.select(at(event)));
      canvas.addEventListener("keydown", (event) => {
        if (event.altKey || event.ctrlKey || event.metaKey || !this.onKey(name, event.key)) return;
        event.preventDefault(); // the page must not scroll under the arrows
        event.stopPropagation();
      });
    }
  }

  listenToControls() {
    for (const group of this.root.querySelectorAll("[data-switch]")) {
      group.addEventListener("click", ({ target }) => {
        if (target.value) this.adopt({ [group.dataset.switch]: target.value });
      });
    }
    const slider = this.find(".overlay input");
    slider.addEventListener("input", () => this.adopt({ overlay: Number(slider.value) }));
    this.find(".play").addEventListener("click", () => this.togglePlay());
    this.find(".save").addEventListener("click", () => this.save());
  }

  whatIsAt(name, x, y) {
    if (name === "picture") return this.tokenAt(x, y);
    if (name === "matrix") {
      const { axis } = this.layout.matrix;
      const pair = [axis.token(y - BAND), axis.token(x - GUTTER)];
      return pair.includes(null) ? null : { pair };
    }
    const { pitch } = this.layout.heads;
    const [layer, head] = [Math.floor((y - BAND) / pitch), Math.floor((x - LABELS) / pitch)];
    const inside =
      layer >= 0 && head >= 0 && layer < this.header.layers && head < this.header.heads;
    return inside ? { layer, head } : null;
  }

  tokenAt(x, y) {
    const { width, height, top } = this.layout.picture;
    const { grid, has_cls: hasCls } = this.header;
    if (y < top) return hasCls && x < 76 ? { token: 0 } : null;
    if (x < 0 || x >= width || y >= top + height) return null;
    const row = Math.floor(((y - top) / height) * grid[0]);
    const column = Math.floor((x / width) * grid[1]);
    return { token: row * grid[1] + column + this.firstPatch() };
  }

  select(target) {
    if (!target) return;
    if (target.pair) {
      const [query, key] = target.pair;
      this.choose({ token: this.habit.direction === "from" ? query : key, pair: target.pair });
    } else if (target.token !== undefined) {
      this.choose({ token: target.token, pair: null });
    } else {
      this.stop({ report: false });
      this.choose(target);
    }
  }

  /** True if the key means something here. */
  onKey(name, key) {
    if (key === " " && this.header.parts.includes("heads")) {
      this.togglePlay();
      return true;
    }
    if (key === "Enter") {
      if (name === "matrix")
        this.select(this.hover ?? { pair: this.pair ?? this.pairWith(this.token) });
      this.report(0);
      return true;
    }
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (name === "picture") return this.moveToken(key, steps[key]);
    if (!steps[key]) return false;
    const [down, right] = steps[key];
    const { layers, heads, tokens } = this.header;
    if (name === "heads") {
      this.choose({
        layer: clamp(this.layer + down, layers),
        head: clamp(this.head + right, heads),
      });
    } else {
      const [row, column] = this.hover?.pair ?? this.pair ?? this.pairWith(this.token);
      this.point({ pair: [clamp(row + down, tokens), clamp(column + right, tokens)] });
    }
    return true;
  }

  /** Over the grid; beyond its top or left edge lies [CLS]. */
  moveToken(key, step) {
    const { tokens, grid, has_cls: hasCls } = this.header;
    const first = this.firstPatch();
    const go = (token) => {
      this.choose({ token, pair: null });
      return true;
    };
    if (key === "Home") return go(0);
    if (key === "End") return go(tokens - 1);
    if (!step) return false;
    const [down, right] = step;
    if (hasCls && this.token === 0) return down + right > 0 ? go(first) : true;
    const row = Math.floor((this.token - first) / grid[1]) + down;
    const column = ((this.token - first) % grid[1]) + right;
    if (hasCls && (row < 0 || column < 0)) return go(0);
    return go(clamp(row, grid[0]) * grid[1] + clamp(column, grid[1]) + first);
  }

  /** Everything in one PNG, twice as fine as a plain screen, with caption and colour bar. */
  async save() {
    const blob = await this.composed().convertToBlob({ type: "image/png" });
    const link = document.createElement("a");
    const { layer, head, token } = this;
    const place = this.maps ? `layer-${layer}-head-${head}-token-${token}` : `token-${token}`;
    link.href = URL.createObjectURL(blob);
    link.download = `${slug(this.header.value_name)}-${place}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
}

// ---- small things -------------------------------------------------------------------------------

function sameBytes(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

function largest(values) {
  return values.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
}

function clamp(number, count) {
  return Math.min(count - 1, Math.max(0, number));
}

function clampUnit(share) {
  return Math.min(1, Math.max(0, share));
}

function span(text, role) {
  const element = document.createElement("span");
  element.textContent = text;
  if (role) element.className = role;
  return element;
}
