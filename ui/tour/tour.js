// The pipeline, stage by stage. One patch is in focus; pointing at a patch moves the focus, and
// every stage shows that patch at once. Class names are a user's own words: only ever text.

const SCAN_MS = 3500; // a new picture's patches light up once, in reading order
const tours = new WeakMap();

export default function ({ parentElement, data: [data], setTriggerValue }) {
  const root = parentElement.querySelector(".tour");
  const theme = getComputedStyle(root).getPropertyValue("--st-background-color");
  const state = theme + JSON.stringify(data);
  const last = tours.get(root);
  if (last?.state === state) return;
  last?.stop();
  const tour = new Tour(root, data, isDark(theme) ? data.palettes.dark : data.palettes.light, setTriggerValue);
  tour.state = state;
  tours.set(root, tour);
  if (last?.data.pixels !== data.pixels) tour.scan();
  return () => root.isConnected || tour.stop();
}

// ---- bytes and colours --------------------------------------------------------------------------

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** 0 … 1 → [r, g, b], along evenly spaced stops. */
function along(stops, share) {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * (at - low)));
}

function isDark(css) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillStyle = css || "#fff";
  context.fillRect(0, 0, 1, 1);
  const [r, g, b] = context.getImageData(0, 0, 1, 1).data;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 128;
}

/** Fill a canvas pixel by pixel; colour(x, y) is [r, g, b] or [r, g, b, alpha] or null. */
function paint(canvas, width, height, colour) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 4) {
      const c = colour(x, y);
      if (c) image.data.set([c[0], c[1], c[2], c[3] ?? 255], at);
    }
  }
  context.putImageData(image, 0, 0);
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function format(value, decimals) {
  return value.toFixed(decimals).replace(/^-/, "−");
}

// ---- the tour -----------------------------------------------------------------------------------

class Tour {
  constructor(root, data, palette, setTriggerValue) {
    Object.assign(this, { root, data, palette });
    this.count = data.grid ** 2;
    this.numbers = new Float32Array(bytes(data.numbers).buffer);
    this.attention = new Float32Array(bytes(data.attention).buffer);
    this.diverging = palette.diverging.map(rgb);
    this.sequential = palette.sequential.map(rgb);
    for (const role of ["ground", "ink", "muted", "line", "query"]) {
      root.style.setProperty(`--${role}`, palette[role]);
    }
    this.cards = {};
    root.replaceChildren(...data.stages.map((stage, index) => this.card(stage, index)));
    root.onclick = (event) => {
      const link = event.target.closest("a");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      setTriggerValue("open", { page: link.dataset.page, token: this.pointed ?? data.token });
    };
    for (const kind of ["picture", "patches", "attention"]) this.follow(this.cards[kind]);
    this.point(null);
  }

  card(stage, index) {
    const link = element("a");
    link.href = stage.href;
    link.dataset.page = stage.page;
    link.dataset.kind = stage.kind;
    const art = element("div", "art");
    const title = element("div", "title", stage.title);
    title.dataset.step = index + 1;
    const readout = element("div", "readout");
    link.append(art, this.scale(stage.kind), title, element("div", "shape", stage.shape));
    link.append(element("div", "text", stage.text), element("div", "leads", `${stage.page} →`), readout);
    const card = { link, art, readout };
    this.cards[stage.kind] = card;
    this[`draw_${stage.kind}`](card);
    const item = element("li");
    item.append(link);
    return item;
  }

  /** A colour bar, for the stages that show numbers as colours; its line is there in all. */
  scale(kind) {
    const bar = element("div", "scale");
    const ends = {
      numbers: ["−2", "2", "pale"],
      tokens: [`−${format(this.data.tokens.top, 1)}`, format(this.data.tokens.top, 1), "diverging"],
      cls: ["−max", "max of each row", "diverging"],
      attention: ["0", "", "sequential"],
    }[kind];
    if (!ends) return bar;
    const ramp = element("i");
    const pale = [-1, 0, 1].map((value) => this.pale(value));
    ramp.style.backgroundImage = `linear-gradient(to right, ${(this.palette[ends[2]] ?? pale).join(", ")})`;
    const high = element("span", "high", ends[1]);
    bar.append(element("span", "", ends[0]), ramp, high);
    if (kind === "attention") this.high = high;
    return bar;
  }

  /** The middle of the diverging scale, on which print can be read; value is −1 … 1. */
  pale(value) {
    return `rgb(${along(this.diverging, 0.5 + 0.28 * Math.max(-1, Math.min(1, value))).join(" ")})`;
  }

  image(card, source, className = "") {
    const image = element("img", className);
    image.src = source;
    image.alt = "";
    card.art.append(image);
  }

  mark(card) {
    card.mark = element("div", "mark");
    card.art.append(card.mark);
    card.art.classList.add("framed");
  }

  // -- what each stage looks like --

  draw_picture(card) {
    this.image(card, this.data.pixels);
    this.mark(card);
  }

  draw_patches(card) {
    const { grid, patch } = this.data;
    this.gap = Math.max(1, Math.round(patch / 4));
    const canvas = element("canvas");
    canvas.width = canvas.height = grid * (patch + this.gap) - this.gap;
    card.art.append(canvas);
    const image = new Image();
    image.onload = () => {
      const context = canvas.getContext("2d");
      for (let index = 0; index < this.count; index++) {
        const [row, column] = [Math.floor(index / grid), index % grid];
        const [x, y] = [column * patch, row * patch];
        context.drawImage(image, x, y, patch, patch, x + column * this.gap, y + row * this.gap, patch, patch);
      }
    };
    image.src = this.data.pixels;
    this.mark(card);
  }

  draw_numbers(card) {
    const { patch, channels } = this.data;
    const width = this.numbers.length / this.count;
    const columns = Math.min(patch, 4);
    card.shown = Math.min(width, 12 * columns);
    const table = element("div", "numbers");
    table.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
    card.cells = Array.from({ length: card.shown }, (_, index) => {
      const cell = element("span");
      if (channels === 3 && index % (width / 3) < columns) {
        cell.className = "colour";
        cell.style.setProperty("--channel", ["#dc2626", "#16a34a", "#2563eb"][Math.floor(index / (width / 3))]);
      }
      return cell;
    });
    table.append(...card.cells);
    card.art.append(table);
  }

  draw_tokens(card) {
    card.canvas = element("canvas");
    card.art.append(card.canvas);
    const { bytes: text, rows, columns } = this.data.tokens;
    card.steps = new Int8Array(bytes(text).buffer);
    card.tall = Math.max(1, Math.round(columns / (rows + 2)));
  }

  draw_attention(card) {
    this.image(card, this.data.square, "smooth");
    card.canvas = element("canvas");
    card.art.append(card.canvas);
    this.mark(card);
  }

  draw_cls(card) {
    const canvas = element("canvas");
    card.art.append(canvas);
    const { bytes: text, rows, columns } = this.data.listener;
    const steps = new Int8Array(bytes(text).buffer);
    paint(canvas, columns, rows * 8, (x, y) => {
      if (y % 8 === 7) return null;
      return along(this.diverging, 0.5 + steps[Math.floor(y / 8) * columns + x] / 254);
    });
  }

  draw_answer(card) {
    const bars = element("div", "bars");
    for (const { name, value } of this.data.answer) {
      const row = element("div");
      const bar = element("span");
      const fill = element("i");
      fill.style.width = `${100 * value}%`;
      bar.append(fill);
      row.append(element("span", "name", name), bar, element("span", "value", `${format(100 * value, 1)} %`));
      bars.append(row);
    }
    card.art.append(bars);
  }

  draw_filters(card) {
    this.image(card, this.data.filters);
  }

  // -- the patch in focus --

  /** Show a patch (its token) in every stage; null goes back to where the page stands. */
  point(token) {
    this.pointed = token;
    const patch = token ?? (this.data.token || this.data.focus);
    const query = token ?? this.data.token;
    this.showNumbers(patch);
    this.showTokens(patch);
    this.showAttention(query);
    const { grid, patch: side } = this.data;
    const [row, column] = [Math.floor((patch - 1) / grid), (patch - 1) % grid];
    this.place(this.cards.picture, column / grid, row / grid, 1 / grid);
    const step = side + this.gap;
    const whole = grid * step - this.gap;
    this.place(this.cards.patches, (column * step) / whole, (row * step) / whole, side / whole);
    this.cards.patches.readout.textContent = `patch ${patch} (row ${row}, column ${column})`;
  }

  place(card, left, top, size) {
    Object.assign(card.mark.style, {
      left: `${100 * left}%`,
      top: `${100 * top}%`,
      width: `${100 * size}%`,
      height: `${100 * size}%`,
    });
  }

  showNumbers(patch) {
    const card = this.cards.numbers;
    const width = this.numbers.length / this.count;
    card.cells.forEach((cell, index) => {
      const value = this.numbers[(patch - 1) * width + index];
      cell.textContent = format(value, 2);
      cell.style.background = this.pale(value / 2);
    });
    const rest = width - card.shown;
    card.readout.textContent =
      `patch ${patch}, ` + (rest ? `its first ${card.shown} numbers of ${width}` : `all its ${width} numbers`);
  }

  showTokens(patch) {
    const { canvas, steps, tall, readout } = this.cards.tokens;
    const { rows, columns } = this.data.tokens;
    const margin = Math.max(3, Math.round(columns / 32));
    const start = 3 * tall; // [CLS] is twice as tall, and a little apart
    const [query, muted] = [rgb(this.palette.query), rgb(this.palette.muted)];
    paint(canvas, columns + margin, start + (rows - 1) * tall, (x, y) => {
      const row = y < 2 * tall ? 0 : y < start ? -1 : 1 + Math.floor((y - start) / tall);
      if (row < 0) return null;
      if (x < margin) return x === margin - 1 ? null : row === patch ? query : row === 0 ? muted : null;
      return along(this.diverging, 0.5 + steps[row * columns + x - margin] / 254);
    });
    readout.textContent = `patch ${patch} is row ${patch}, green; [CLS] is row 0, grey`;
  }

  showAttention(query) {
    const card = this.cards.attention;
    const { grid, place } = this.data;
    const row = this.attention.subarray(query * (this.count + 1), (query + 1) * (this.count + 1));
    const patches = row.subarray(1);
    const top = Math.max(...patches);
    paint(card.canvas, grid, grid, (x, y) => {
      const share = patches[y * grid + x] / top;
      return [...along(this.sequential, share), 255 * (0.4 + 0.45 * share)];
    });
    this.high.textContent = format(top, 3);
    card.mark.hidden = query === 0;
    if (query) this.place(card, ((query - 1) % grid) / grid, Math.floor((query - 1) / grid) / grid, 1 / grid);
    const who = query ? `patch ${query}` : "[CLS]";
    card.readout.textContent =
      `layer ${place.layer}, head ${place.head}: ${who} looks most at patch ` +
      `${1 + patches.indexOf(top)}, ${format(top, 3)}`;
  }

  // -- pointer, keys, and the scan --

  follow(card) {
    const { grid } = this.data;
    const tokenAt = (event) => {
      const box = card.art.getBoundingClientRect();
      const column = Math.floor(((event.clientX - box.left) / box.width) * grid);
      const row = Math.floor(((event.clientY - box.top) / box.height) * grid);
      const inside = column >= 0 && column < grid && row >= 0 && row < grid;
      return inside ? 1 + row * grid + column : null;
    };
    card.art.onpointermove = (event) => {
      this.stop();
      const token = tokenAt(event);
      if (token !== this.pointed) this.point(token);
    };
    card.art.onpointerdown = card.art.onpointermove;
    card.art.onpointerleave = () => this.point(null);
    card.link.onblur = () => this.point(null);
    card.link.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid, ArrowDown: grid }[event.key];
      if (!step) return;
      event.preventDefault();
      this.stop();
      const from = this.pointed ?? (this.data.token || this.data.focus);
      if (from + step >= 1 && from + step <= this.count) this.point(from + step);
    };
  }

  scan() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const began = performance.now();
    const step = (now) => {
      const token = 1 + Math.max(0, Math.floor(((now - began) / SCAN_MS) * this.count));
      if (token > this.count) return this.stop();
      if (token !== this.pointed) this.point(token);
      this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  stop() {
    if (!this.frame) return;
    cancelAnimationFrame(this.frame);
    this.frame = null;
    this.point(null);
  }
}
