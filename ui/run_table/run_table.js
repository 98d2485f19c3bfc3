// The runs as a table. It is patched rather than drawn anew, so that nothing jumps, and neither the
// focus nor the place it was scrolled to is lost, while the runs in it move on.

const LETTERS = "ABCDEFGH";
const sent = new WeakMap(); // box → what was sent to Python and has not come back yet

export default function ({ parentElement, data: told, setTriggerValue }) {
  const box = parentElement.querySelector(".box");
  const table = box.querySelector("table");
  const [chosen] = latest(box, "choose", [told.chosen]);
  const data = { ...told, chosen, compared: latest(box, "compare", told.compared) };
  for (const [name, colour] of Object.entries(data.colours)) {
    box.style.setProperty(`--${name}`, colour);
  }
  draw();
  reveal(box, table, data.chosen);

  const rowOf = (event) => event.target.closest("tr[data-id]");
  table.onclick = (event) => {
    const row = rowOf(event);
    if (row && !event.target.closest(".compare")) choose(row);
  };
  table.onchange = (event) => {
    const { id } = rowOf(event).dataset;
    const others = data.compared.filter((each) => each !== id);
    data.compared = event.target.checked ? [...others, id] : others;
    send("compare", data.compared);
    draw();
  };
  table.onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.closest("button")) return;
    const rows = [...table.querySelectorAll("tr[data-id]")];
    const next = rows[rows.indexOf(rowOf(event)) + step];
    event.preventDefault();
    if (!next) return;
    next.querySelector("button").focus();
    choose(next);
  };

  function draw() {
    drawHead(table.tHead, data.columns);
    drawPart(table, 0, data.rows.filter((row) => !row.shipped), "", data);
    drawPart(table, 1, data.rows.filter((row) => row.shipped), "Came with the app", data);
  }

  function choose(row) {
    if (row.dataset.id === data.chosen) return;
    data.chosen = row.dataset.id;
    send("choose", [data.chosen]);
    draw();
  }

  function send(what, list) {
    sent.get(box)[what].lists.push(list);
    setTriggerValue(what, list);
  }
}

// The visitor's last word: what Python says counts again once it has heard everything. Without this
// a second click would be undone, and its successor sent, by the answer to the first.
function latest(box, what, told) {
  if (!sent.has(box)) sent.set(box, {});
  const memory = (sent.get(box)[what] ??= { told: "", lists: [] });
  const text = told.join("\n");
  const heard = memory.lists.findIndex((list) => list.join("\n") === text);
  if (heard >= 0) memory.lists.splice(0, heard + 1);
  else if (text !== memory.told) memory.lists = [];
  memory.told = text;
  return memory.lists.at(-1) ?? told;
}

// Scroll to a row that was chosen elsewhere, within the box alone.
function reveal(box, table, chosen) {
  if (box.dataset.shown === chosen) return;
  box.dataset.shown = chosen;
  const row = [...table.querySelectorAll("tr[data-id]")].find((each) => each.dataset.id === chosen);
  if (!row) return;
  const above = table.tHead.offsetHeight;
  const [top, bottom] = [row.offsetTop - above, row.offsetTop + row.offsetHeight - box.clientHeight];
  if (box.scrollTop > top) box.scrollTop = top;
  else if (box.scrollTop < bottom) box.scrollTop = bottom;
}

function drawHead(head, columns) {
  const titles = ["Compare", "Run", "State", ...columns];
  if (head.dataset.titles === titles.join("\n")) return;
  head.dataset.titles = titles.join("\n");
  const row = document.createElement("tr");
  row.append(
    ...titles.map((title, index) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = ["compare", "run", "state"][index] ?? "number";
      cell.textContent = title;
      return cell;
    }),
  );
  head.replaceChildren(row);
}

function drawPart(table, index, rows, title, data) {
  const body = table.tBodies[index] ?? table.createTBody();
  const known = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  const wanted = rows.map((row) => fill(known.get(row.id) ?? create(row, data), row, data));
  if (title && rows.length) wanted.unshift(known.get(undefined) ?? heading(title, data));
  for (const row of body.querySelectorAll("tr")) if (!wanted.includes(row)) row.remove();
  wanted.forEach((row, place) => {
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
  });
}

function heading(title, { columns }) {
  const row = document.createElement("tr");
  const cell = document.createElement("th");
  cell.scope = "rowgroup";
  cell.colSpan = 3 + columns.length;
  cell.textContent = title;
  row.className = "heading";
  row.append(cell);
  return row;
}

function create({ id }, { columns }) {
  const row = document.createElement("tr");
  row.dataset.id = id;
  row.innerHTML =
    '<td class="compare"><label><input type="checkbox"><span class="letter"></span></label></td>' +
    '<th class="run" scope="row"><button type="button"></button><span class="tags"></span></th>' +
    '<td class="state"><span class="status"><span class="words"></span><i class="bar"><i></i></i></span></td>' +
    columns.map(() => '<td class="number"></td>').join("");
  return row;
}

function fill(row, { id, name, tags, state, tone, share, numbers }, data) {
  const place = data.compared.indexOf(id);
  const checkbox = row.querySelector("input");
  checkbox.checked = place >= 0;
  checkbox.disabled = place < 0 && data.compared.length >= data.most;
  checkbox.ariaLabel = `Compare ${name}`;
  write(row.querySelector(".letter"), LETTERS[place] ?? "");
  write(row.querySelector("button"), name);
  const shown = row.querySelector(".tags");
  if (shown.dataset.tags !== tags.join("\n")) {
    shown.dataset.tags = tags.join("\n");
    shown.replaceChildren(
      ...tags.map((tag) => {
        const chip = document.createElement("span");
        chip.textContent = tag;
        return chip;
      }),
    );
  }
  write(row.querySelector(".words"), state);
  row.dataset.tone = tone;
  const bar = row.querySelector(".bar");
  bar.style.visibility = share === null ? "hidden" : "visible";
  bar.firstChild.style.width = `${100 * (share ?? 0)}%`;
  row.querySelectorAll("td.number").forEach((cell, index) => {
    write(cell, numbers[index]);
    cell.dataset.title = data.columns[index];
  });
  mark(row, id === data.chosen);
  return row;
}

function mark(row, chosen) {
  row.classList.toggle("chosen", chosen);
  const button = row.querySelector("button");
  button.ariaPressed = String(chosen);
  button.tabIndex = chosen ? 0 : -1;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
