// Confusion matrices as tables: ours and, where there is one to set beside it, a published one and
// the difference. Hovering, the arrow keys and the switch between counts and shares are answered
// here at once; only a chosen cell is reported to Python.

const DENSE = 20; // with more classes than this a cell has no room for its number
const SPEAK_MS = 400; // screen readers get the caption when the pointer rests
const NAME_WIDTH = 7; // pixels a letter takes, about
const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Streamlit calls the default export again at every rerun; the matrix of an element stays the same.
const matrices = new WeakMap();

// Counts or shares, by key: it survives a change of page.
const modes = new Map();

export default function ({ parentElement, data, setStateValue }) {
  const root = parentElement.querySelector(".matrix");
  if (!matrices.has(root)) matrices.set(root, new Matrix(root));
  matrices.get(root).receive(data, setStateValue);
}

class Matrix {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.reported = []; // cells that Python has not answered yet
    this.find(".switch").addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (button) this.show(button.value);
    });
    const tables = this.find(".tables");
    tables.addEventListener("pointerover", ({ target }) => this.light(cellOf(target)));
    tables.addEventListener("pointerleave", () => this.light(null));
    tables.addEventListener("focusin", ({ target }) => this.light(cellOf(target)));
    tables.addEventListener("focusout", () => this.light(null));
    tables.addEventListener("click", ({ target }) => this.choose(target));
    tables.addEventListener("keydown", (event) => this.press(event));
  }

  receive(data, setStateValue) {
    this.setStateValue = setStateValue;
    const before = JSON.stringify(this.data?.tables);
    this.data = data;
    this.applyTheme();
    if (before !== JSON.stringify(data.tables)) {
      this.sums = data.tables.map(({ counts }) => counts?.map((row) => row.reduce((a, b) => a + b, 0)));
      this.build();
      this.cell = data.cell;
      this.reported = [];
      this.show(modes.get(data.key) ?? "count");
    }
    // An answer to an earlier click must not undo a later one.
    const answered = this.reported.findIndex((cell) => same(cell, data.cell));
    if (answered >= 0) this.reported.splice(0, answered + 1);
    else if (!this.reported.length || !same(data.cell, this.answered)) {
      this.reported = [];
      this.cell = data.cell;
    }
    this.answered = data.cell;
    this.mark();
  }

  applyTheme() {
    for (const [name, colour] of Object.entries(this.data.colours)) {
      this.root.style.setProperty(`--${name}`, colour);
    }
    this.stops = Object.keys(this.data.colours).filter((name) => name.startsWith("sequential")).length;
  }

  build() {
    const { names, tables } = this.data;
    const dense = names.length > DENSE;
    const longest = Math.max(...names.map((name) => name.length));
    const box = this.find(".tables");
    box.dataset.count = tables.length;
    box.style.setProperty("--names", `${Math.min(12 + NAME_WIDTH * Math.max(longest, 4), 110)}px`);
    box.style.setProperty("--count", names.length);
    box.replaceChildren(
      ...tables.map(({ title }, number) => {
        const figure = make("figure", { className: dense ? "dense" : number ? "small" : "" });
        const table = make("table", { role: "grid", ariaLabel: `${title}: rows true class, columns predicted class` });
        table.append(this.head(names), this.body(names, number));
        const legend = make("div", { className: "legend" });
        for (const part of ["low", "bar", "high", "unit"]) legend.append(make("span", { className: part }));
        figure.append(make("figcaption", { textContent: title }), table, legend);
        return figure;
      }),
    );
  }

  head(names) {
    const head = make("thead");
    const axis = make("tr", { className: "axis" });
    axis.append(make("th", { textContent: "" }), make("th", { textContent: "predicted class", colSpan: names.length }));
    const columns = make("tr", { className: "columns" });
    const corner = make("th", { textContent: "true class" });
    columns.append(corner);
    names.forEach((name, column) => {
      const cell = make("th", { scope: "col", title: name });
      cell.dataset.column = column;
      cell.append(make("span", { textContent: name }));
      columns.append(cell);
    });
    head.append(axis, columns);
    return head;
  }

  body(names, table) {
    const body = make("tbody");
    names.forEach((name, row) => {
      const line = make("tr");
      const label = make("th", { scope: "row", textContent: name, title: name });
      label.dataset.row = row;
      line.append(label);
      names.forEach((_, column) => {
        const cell = make("td", { tabIndex: -1, role: "gridcell" });
        Object.assign(cell.dataset, { table, row, column });
        line.append(cell);
      });
      body.append(line);
    });
    return body;
  }

  // ---- numbers ----

  /** What a cell shows: a count, or its percentage of the row; null for a class without pictures. */
  value(table, row, column, mode) {
    const { counts, difference } = this.data.tables[table];
    if (difference) {
      const [one, other] = difference.map((of) => this.value(of, row, column, mode));
      return one === null || other === null ? null : one - other;
    }
    if (mode === "count") return counts[row][column];
    return this.sums[table][row] ? (100 * counts[row][column]) / this.sums[table][row] : null;
  }

  show(mode) {
    this.mode = mode;
    modes.set(this.data.key, mode);
    for (const button of this.root.querySelectorAll(".switch button")) {
      button.ariaPressed = String(button.value === mode);
    }
    const { names, tables } = this.data;
    const dense = names.length > DENSE;
    const limits = this.limits(mode);
    for (const cell of this.root.querySelectorAll("td")) {
      const [table, row, column] = place(cell);
      const value = this.value(table, row, column, mode);
      const signed = Boolean(tables[table].difference);
      const decimals = mode === "share" && !table ? 1 : 0;
      const text = value === null ? "–" : write(value, decimals, signed);
      cell.textContent = dense ? "" : text;
      if (dense) cell.ariaLabel = text;
      const right = row === column && !signed;
      cell.className = right ? "right" : value ? "" : "none";
      const share = right || !value ? 0 : value / limits[table];
      cell.style.background = share ? this.colour(signed, share) : "";
      cell.style.color = share && Math.abs(share) > 0.45 ? "var(--ground)" : "";
    }
    this.root.querySelectorAll("figure").forEach((figure, table) => {
      const signed = Boolean(tables[table].difference);
      const limit = write(limits[table], mode === "share" ? 1 : 0, signed);
      figure.querySelector(".low").textContent = signed ? limit.replace("+", "−") : "0";
      figure.querySelector(".high").textContent = limit;
      figure.querySelector(".unit").textContent = this.unit(signed) + (table ? "" : "; the diagonal is right");
      const kind = signed ? "diverging" : "sequential";
      const stops = Array.from({ length: this.stops }, (_, i) => `var(--${kind}-${i})`);
      figure.querySelector(".bar").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    });
    this.say();
  }

  unit(signed) {
    const what = this.mode === "share" ? (signed ? "points of each row" : "% of each row") : "pictures";
    return signed ? what : `${what} mistaken`;
  }

  /** The end of each table's scale: mistakes share one, so that their colours can be compared. */
  limits(mode) {
    const { names, tables } = this.data;
    const largest = tables.map(({ difference }, table) => {
      let most = 0;
      names.forEach((_, row) =>
        names.forEach((_, column) => {
          if (row === column && !difference) return;
          most = Math.max(most, Math.abs(this.value(table, row, column, mode) ?? 0));
        }),
      );
      return most;
    });
    const mistakes = Math.max(...largest.filter((_, table) => !tables[table].difference));
    return tables.map(({ difference }, table) => (difference ? largest[table] : mistakes) || 1);
  }

  /** share: 0 … 1 along the sequential scale, −1 … 1 along the diverging one. */
  colour(signed, share) {
    const at = (signed ? (share + 1) / 2 : share) * (this.stops - 1);
    const low = Math.min(Math.floor(at), this.stops - 2);
    const kind = signed ? "diverging" : "sequential";
    return `color-mix(in srgb, var(--${kind}-${low}), var(--${kind}-${low + 1}) ${100 * (at - low)}%)`;
  }

  // ---- choosing ----

  light(cell) {
    this.hover = cell ? place(cell).slice(1) : null;
    for (const lit of this.root.querySelectorAll(".lit")) lit.classList.remove("lit");
    if (this.hover) {
      const [row, column] = this.hover;
      const lit = `td[data-row="${row}"][data-column="${column}"], th[data-row="${row}"], th[data-column="${column}"]`;
      for (const part of this.root.querySelectorAll(lit)) part.classList.add("lit");
    }
    this.say();
  }

  choose(target) {
    const cell = cellOf(target);
    if (!cell) return;
    const chosen = place(cell).slice(1);
    if (same(chosen, this.cell)) return;
    this.cell = chosen;
    this.reported.push(chosen);
    this.setStateValue("cell", chosen);
    this.mark();
  }

  press(event) {
    const cell = cellOf(event.target);
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") {
      this.choose(cell);
    } else if (event.key in KEYS) {
      const [table, row, column] = place(cell);
      const [down, right] = KEYS[event.key];
      this.at(table, row + down, column + right)?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }

  at(table, row, column) {
    return this.find(`td[data-table="${table}"][data-row="${row}"][data-column="${column}"]`);
  }

  mark() {
    for (const cell of this.root.querySelectorAll('td[aria-selected="true"], td[tabindex="0"]')) {
      cell.removeAttribute("aria-selected");
      cell.tabIndex = -1;
    }
    this.data.tables.forEach((_, table) => {
      const cell = this.at(table, ...(this.cell ?? [0, 0]));
      cell.tabIndex = 0;
      if (this.cell) cell.ariaSelected = "true";
    });
    this.say();
  }

  say() {
    const cell = this.hover ?? this.cell;
    const caption = this.find(".caption");
    if (!cell) return caption.replaceChildren();
    const { names, tables } = this.data;
    const [row, column] = cell;
    const right = row === column ? " (right)" : "";
    const parts = tables.map(({ short, difference }, table) => {
      const count = this.value(table, row, column, "count");
      const share = this.value(table, row, column, "share");
      if (difference) return `${short} ${write(count, 0, true)} (${write(share ?? 0, 1, true)} points)`;
      if (share === null) return `${short} no pictures of this class`;
      const all = this.sums[table][row].toLocaleString("en-GB");
      return `${short} ${write(count, 0)} of ${all} (${write(share, 1)} %)`;
    });
    const bold = make("b", { textContent: `${names[row]} → ${names[column]}${right}: ` });
    caption.replaceChildren(bold, parts.join(" · "));
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => (this.find(".spoken").textContent = caption.textContent), SPEAK_MS);
  }
}

function make(tag, properties = {}) {
  return Object.assign(document.createElement(tag), properties);
}

function cellOf(target) {
  return target.closest("td");
}

/** [table, row, column] of a cell. */
function place(cell) {
  return ["table", "row", "column"].map((name) => Number(cell.dataset[name]));
}

function same(one, other) {
  return one?.[0] === other?.[0] && one?.[1] === other?.[1];
}

function write(value, decimals, signed = false) {
  const text = Math.abs(value).toFixed(decimals);
  const sign = Number(text) === 0 ? "" : value < 0 ? "−" : signed ? "+" : "";
  return sign + text;
}
