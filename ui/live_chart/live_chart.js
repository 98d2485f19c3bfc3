// Curves of a run that is being trained. What is looked at (the steps zoomed to, the smoothing, the
// scale) lives here, so that new points change none of it; all charts share it, and the crosshair.
// Python only hears which steps are zoomed to, and then sends more of the points among them.

const WIDTH_OF_DRAG = 6; // pixels; anything shorter is a click
const SPEAK_MS = 400;
const MARGIN = { left: 46, right: 10, top: 16, bottom: 22 };
const KEYS = { ArrowLeft: -1, ArrowRight: 1 };

// Streamlit calls the default export again at every rerun; the charts of an element stay the same.
const boards = new WeakMap();

// How a visitor looks at curves, and at which steps of which run: it survives a change of page.
const look = { smoothing: 0.6, log: false };
const ranges = new Map();

export default function ({ parentElement, data: [data], setStateValue }) {
  const root = parentElement.querySelector(".live");
  if (!boards.has(root)) boards.set(root, new Board(root));
  boards.get(root).receive(data, setStateValue);
}

class Board {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.charts = [];
    this.cross = null; // the step under the pointer, on all charts
    const slider = this.find(".smoothing input");
    slider.value = look.smoothing;
    slider.addEventListener("input", () => this.change({ smoothing: Number(slider.value) }));
    const log = this.find(".log input");
    log.checked = look.log;
    log.addEventListener("change", () => this.change({ log: log.checked }));
    this.find(".whole").addEventListener("click", () => this.zoom(null));
    new ResizeObserver(() => this.draw()).observe(this.find(".charts"));
  }

  receive(data, setStateValue) {
    this.setStateValue = setStateValue;
    const text = JSON.stringify(data);
    if (text === this.text) return;
    const before = this.data;
    this.text = text;
    this.data = data;
    for (const [name, colour] of Object.entries(data.colours)) this.root.style.setProperty(`--${name}`, colour);
    const titles = data.charts.map(({ title }) => title).join();
    if (!before || titles !== before.charts.map(({ title }) => title).join()) this.build();
    // A page that was left and opened again has to be told what is zoomed to.
    if (!before && this.range && String(this.range) !== String(data.range)) setStateValue("range", this.range);
    this.draw();
  }

  get range() {
    return ranges.get(this.data.run) ?? null;
  }

  /** From and to which step the charts reach. */
  get domain() {
    return this.range ?? [0, this.data.end];
  }

  change(changes) {
    Object.assign(look, changes);
    this.draw();
  }

  zoom(range) {
    if (range) ranges.set(this.data.run, range);
    else ranges.delete(this.data.run);
    this.setStateValue("range", range);
    this.draw();
  }

  point(step) {
    this.cross = step;
    for (const chart of this.charts) chart.point(step);
  }

  speak(words) {
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => (this.find(".spoken").textContent = words), SPEAK_MS);
  }

  build() {
    this.charts = this.data.charts.map((_, number) => new Chart(this, number));
    this.find(".charts").replaceChildren(...this.charts.map(({ figure }) => figure));
  }

  draw() {
    this.find(".smoothing output").textContent = look.smoothing.toFixed(2);
    this.find(".whole").disabled = !this.range;
    this.root.dataset.range = this.range?.map(Math.round).join("–") ?? "";
    this.root.dataset.last = this.data.last;
    const names = new Map(this.data.charts.flatMap(({ lines }) => lines.map((line) => [line.name, line])));
    this.find(".legend").replaceChildren(
      ...[...names.values()].filter(({ name }) => name).map(({ name, colour, dots }) => {
        const entry = html("span", { textContent: name, className: dots ? "dots" : "" });
        entry.style.setProperty("--colour", `var(--${colour})`);
        return entry;
      }),
    );
    this.find(".note").textContent = this.data.note;
    for (const chart of this.charts) chart.draw();
    this.point(this.cross);
  }
}

class Chart {
  constructor(board, number) {
    this.board = board;
    this.number = number;
    this.figure = html("figure", { className: this.data.small ? "small" : "" });
    this.now = html("span", { className: "now" });
    const caption = html("figcaption", {});
    caption.append(html("b", { textContent: this.data.title }), html("span", { className: "unit", textContent: this.data.unit }), this.now);
    this.svg = svg("svg", { tabindex: 0, role: "img" });
    this.figure.append(caption, this.svg);
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("mousedown", (event) => event.preventDefault()); // focus is for keys
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("pointercancel", () => this.unmark());
    this.svg.addEventListener("pointerleave", () => this.from === null && board.point(null));
    this.svg.addEventListener("dblclick", () => board.zoom(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => board.point(null));
    this.from = null;
  }

  get data() {
    return this.board.data.charts[this.number];
  }

  // ---- drawing ----

  draw() {
    this.width = Math.max(this.figure.clientWidth, 120);
    this.height = this.svg.clientHeight || 200;
    const [left, right] = [MARGIN.left, this.width - MARGIN.right];
    const [top, bottom] = [MARGIN.top, this.height - MARGIN.bottom];
    const [first, last] = this.board.domain;
    this.x = (step) => left + ((step - first) / (last - first)) * (right - left);
    this.stepAt = (x) => first + ((Math.min(Math.max(x, left), right) - left) / (right - left)) * (last - first);
    this.log = this.data.log && look.log;
    this.lines = this.data.lines.map((line) => ({
      ...line,
      smooth: line.noisy && look.smoothing ? smoothed(line.values, look.smoothing) : line.values,
    }));
    const [low, high, ticks] = this.scale(first, last);
    const place = this.log ? Math.log : (value) => value;
    this.y = (value) => bottom - ((place(value) - place(low)) / (place(high) - place(low))) * (bottom - top);

    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute("aria-label", `${this.data.title}, ${this.data.unit}, from step ${whole(first)} to ${whole(last)}. ${this.words(null)}. Arrow keys move along the curve, plus and minus zoom, Escape shows all steps.`);
    const clip = `clip-${this.number}`;
    const inside = svg("g", { "clip-path": `url(#${clip})` });
    const frame = svg("g", { class: "frame" });
    const crop = svg("clipPath", { id: clip });
    crop.append(svg("rect", { x: left, y: top - 6, width: right - left, height: bottom - top + 12 }));

    const fine = Math.max(0, ...ticks.slice(1).map((tick, i) => -Math.floor(Math.log10(tick - ticks[i]) + 1e-9)));
    const even = !this.log || ticks.length < 3 || Math.abs(ticks[2] - 2 * ticks[1] + ticks[0]) < 1e-9;
    for (const tick of ticks) {
      const text = tick < 1e-3 ? tick.toExponential(0).replace("-", "−") : even ? decimal(tick, fine) : String(tick);
      frame.append(svg("line", { x1: left, x2: right, y1: this.y(tick), y2: this.y(tick) }));
      frame.append(svg("text", { class: "tick", x: left - 7, y: this.y(tick) + 4, "text-anchor": "end" }, tick ? text : "0"));
    }
    for (const tick of spaced(first, last, Math.max(2, Math.floor(this.width / 75)))) {
      if (!Number.isInteger(tick)) continue;
      const near = this.x(tick) > right - 16 ? "end" : "middle";
      frame.append(svg("text", { class: "step", x: near === "end" ? right : this.x(tick), y: bottom + 16, "text-anchor": near }, whole(tick)));
    }
    for (const { step, text } of this.board.data.marks) {
      if (step < first || step > last) continue;
      const x = this.x(step);
      frame.append(svg("line", { class: "mark", x1: x, x2: x, y1: top - 4, y2: bottom }));
      const end = x > (left + right) / 2;
      if (!this.data.small) frame.append(svg("text", { class: "mark", x: x + (end ? -5 : 5), y: top + 4, "text-anchor": end ? "end" : "start" }, text));
    }
    if (this.data.level && this.data.level.value >= low && this.data.level.value <= high) {
      const y = this.y(this.data.level.value);
      inside.append(svg("line", { class: "level", x1: left, x2: right, y1: y, y2: y }));
      inside.append(svg("text", { class: "mark", x: right - 3, y: y - 5, "text-anchor": "end" }, this.data.level.text));
    }
    for (const line of this.lines) {
      const style = `stroke: var(--${line.colour})`;
      if (line.smooth !== line.values) inside.append(svg("path", { class: "raw", style, d: this.path(line.steps, line.values) }));
      inside.append(svg("path", { class: "line", style, d: this.path(line.steps, line.smooth) }));
      if (!line.dots && line.steps.length > 1) continue;
      line.steps.forEach((step, i) => inside.append(svg("circle", { style, cx: this.x(step), cy: this.y(line.smooth[i]), r: line.steps.length > 25 ? 1.6 : 2.6 })));
    }
    this.brush = svg("rect", { class: "brush", y: top, height: bottom - top, width: 0 });
    this.cross = svg("g", { class: "cross" });
    this.bounds = { left, right, top, bottom };
    this.svg.replaceChildren(crop, frame, inside, this.brush, this.cross);
    if (this.from !== null) this.brushTo(this.to);
  }

  /** Bounds and ticks for what is in sight: from zero, unless a part is zoomed to. */
  scale(first, last) {
    let [low, high] = [Infinity, -Infinity];
    for (const { steps, values } of this.lines) {
      values.forEach((value, i) => {
        if (steps[i] < first || steps[i] > last || (this.log && value <= 0)) return;
        low = Math.min(low, value);
        high = Math.max(high, value);
      });
    }
    if (low > high && !this.data.top && !this.data.level) return [0, 1, [0]];
    if (this.log) {
      if (low > high) [low, high] = [0.1, 1];
      const pad = Math.max((high / low) ** 0.05, 1.01);
      [low, high] = [low / pad, high * pad];
      return [low, high, decades(low, high)];
    }
    if (!this.board.range || low > high) [low, high] = [0, this.data.top ?? Math.max(high, this.data.level?.value ?? 0, 0)];
    if (low === high) [low, high] = [low ? low - Math.abs(low) / 10 : 0, high ? high + Math.abs(high) / 10 : 1];
    const ticks = spaced(low, high, this.data.small ? 2 : 5);
    const gap = ticks[1] - ticks[0];
    if (this.data.top === undefined || this.board.range) {
      low = Math.floor(low / gap + 1e-9) * gap;
      high = Math.ceil(high / gap - 1e-9) * gap;
    }
    return [low, high, spaced(low, high, (high - low) / gap)];
  }

  path(steps, values) {
    let d = "";
    steps.forEach((step, i) => {
      if (!(this.log && values[i] <= 0)) d += `${d ? "L" : "M"}${this.x(step).toFixed(1)} ${this.y(values[i]).toFixed(1)}`;
    });
    return d;
  }

  /** A value as it is read: with as many decimals, or significant digits, as the chart wants. */
  write(value) {
    const { decimals, digits } = this.data;
    if (digits === undefined) return decimal(value, decimals);
    if (value && Math.abs(value) < 1e-3) return value.toExponential(digits - 1).replace("-", "−");
    return value.toPrecision(digits);
  }

  // ---- pointing ----

  /** What the lines say at a step, or at their ends. */
  readings(step) {
    return this.lines.flatMap((line) => {
      if (!line.steps.length) return [];
      const index = step === null ? line.steps.length - 1 : line.dots ? lastUpTo(line.steps, step) : nearest(line.steps, step);
      return index < 0 ? [] : [{ line, index, value: line.smooth[index], raw: line.values[index] }];
    });
  }

  words(step) {
    const said = this.readings(step).map(({ line, value, raw }) => {
      const number = this.write(value) + (this.data.sign ?? "");
      return [line.name, number, line.smooth !== line.values && step !== null ? `(raw ${this.write(raw)})` : ""].filter(Boolean).join(" ");
    });
    return said.join(", ");
  }

  point(step) {
    if (!this.x) return;
    const [first, last] = this.board.domain;
    const seen = step !== null && step >= first && step <= last ? step : null;
    this.now.replaceChildren(
      ...this.readings(seen).map(({ line, value, raw }) => {
        const entry = html("span", { title: line.name, textContent: this.write(value) + (this.data.sign ?? "") });
        entry.style.setProperty("--colour", `var(--${line.colour})`);
        if (seen !== null && line.smooth !== line.values) entry.append(html("small", { textContent: ` raw ${this.write(raw)}` }));
        return entry;
      }),
    );
    this.cross.replaceChildren();
    if (seen === null) return;
    const { left, right, top, bottom } = this.bounds;
    const x = this.x(seen);
    this.cross.append(svg("line", { x1: x, x2: x, y1: top, y2: bottom }));
    for (const { line, index, value } of this.readings(seen)) {
      if (line.steps[index] < first) continue;
      this.cross.append(svg("circle", { style: `fill: var(--${line.colour})`, cx: this.x(line.steps[index]), cy: this.y(value), r: 3.5 }));
    }
    const text = `step ${whole(seen)} · epoch ${(seen / this.board.data.steps_per_epoch).toFixed(1)}`;
    const width = text.length * 6.1 + 10;
    const start = Math.min(Math.max(x - width / 2, left - 10), right - width + 8);
    this.cross.append(svg("rect", { class: "plate", x: start, y: bottom + 3, width, height: 18 }));
    this.cross.append(svg("text", { x: start + width / 2, y: bottom + 16, "text-anchor": "middle" }, text));
  }

  /** The step of a measured point nearest to a place on the screen. */
  stepUnder(event) {
    const step = this.stepAt(event.clientX - this.svg.getBoundingClientRect().left);
    const steps = this.lines[0]?.steps ?? [];
    return steps.length ? steps[nearest(steps, step)] : null;
  }

  press(event) {
    if (event.button) return;
    this.svg.setPointerCapture(event.pointerId);
    this.from = this.to = event.clientX - this.svg.getBoundingClientRect().left;
  }

  move(event) {
    if (this.from !== null) this.brushTo(event.clientX - this.svg.getBoundingClientRect().left);
    this.board.point(this.stepUnder(event));
  }

  brushTo(x) {
    this.to = Math.min(Math.max(x, this.bounds.left), this.bounds.right);
    this.brush.setAttribute("x", Math.min(this.from, this.to));
    this.brush.setAttribute("width", Math.abs(this.to - this.from));
  }

  release(event) {
    if (this.from === null) return;
    const ends = [this.stepAt(this.from), this.stepAt(this.to)].sort((a, b) => a - b);
    const dragged = Math.abs(this.to - this.from) > WIDTH_OF_DRAG;
    this.unmark();
    if (dragged) this.zoomTo(...ends);
    else this.board.point(this.stepUnder(event));
  }

  unmark() {
    this.from = null;
    this.brush.setAttribute("width", 0);
  }

  zoomTo(first, last) {
    const end = this.board.data.end;
    [first, last] = [Math.max(0, first), Math.min(end, last)];
    if (last - first < 2) return;
    this.board.zoom(last - first > 0.98 * end ? null : [first, last]);
  }

  key(event) {
    const steps = this.lines[0]?.steps ?? [];
    const [first, last] = this.board.domain;
    const half = (last - first) / 2;
    const middle = this.board.cross ?? first + half;
    if (event.key in KEYS && steps.length) {
      const at = this.board.cross === null ? steps.length - 1 : nearest(steps, this.board.cross) + KEYS[event.key];
      const step = steps[Math.min(Math.max(at, 0), steps.length - 1)];
      this.board.point(step);
      this.board.speak(`Step ${whole(step)}: ${this.words(step)}`);
    } else if (event.key === "+" || event.key === "=") this.zoomTo(middle - half / 2, middle + half / 2);
    else if (event.key === "-") this.zoomTo(middle - 2 * half, middle + 2 * half);
    else if (event.key === "Escape") this.board.zoom(null);
    else return;
    event.preventDefault();
  }
}

// ---- numbers ----

/** The exponential moving average s ← w·s + (1 − w)·x from s = 0, divided by 1 − wⁿ, which is what
 * the weights of n values add up to: TensorBoard's. */
function smoothed(values, weight) {
  let sum = 0;
  return values.map((value, i) => {
    sum = weight * sum + (1 - weight) * value;
    return sum / (1 - weight ** (i + 1));
  });
}

/** Round numbers from low to high, about as many as wanted. */
function spaced(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map((times) => times * unit).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let n = Math.ceil(low / gap - 1e-9); n * gap <= high + gap * 1e-9; n++) ticks.push(Number((n * gap).toPrecision(12)));
  return ticks.length > 1 ? ticks : [low, high];
}

/** 1, 2 and 5 times powers of ten between low and high; the powers alone where those are many, other
 * round numbers where they are too few. */
function decades(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const times of [1, 2, 5]) ticks.push(Number(`${times}e${power}`));
  }
  const seen = ticks.filter((tick) => tick >= low && tick <= high);
  if (seen.length < 3) return spaced(low, high, 5);
  return seen.length > 6 ? seen.filter((tick) => String(tick).match(/^[0.]*1(0*|e.*)$/)) : seen;
}

function lastUpTo(steps, step) {
  let index = -1;
  while (index + 1 < steps.length && steps[index + 1] <= step) index++;
  return index;
}

function nearest(steps, step) {
  const after = Math.min(lastUpTo(steps, step) + 1, steps.length - 1);
  const before = Math.max(after - 1, 0);
  return step - steps[before] < steps[after] - step ? before : after;
}

function decimal(value, decimals) {
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return value.toLocaleString("en", digits).replace("-", "−");
}

function whole(step) {
  return Math.round(step).toLocaleString("en");
}

function html(name, properties) {
  return Object.assign(document.createElement(name), properties);
}

function svg(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}
