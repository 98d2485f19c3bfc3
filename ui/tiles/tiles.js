// Pictures with a word on each, cut from one sheet. Those that can be opened are true links; a plain
// click goes through Streamlit, which changes the page without loading it anew.

export default function ({ parentElement, data, setTriggerValue }) {
  const list = parentElement.querySelector(".tiles");
  for (const [name, colour] of Object.entries(data.colours)) {
    list.style.setProperty(`--${name}`, colour);
  }
  if (data.columns) list.dataset.columns = data.columns;
  list.style.setProperty("--columns", data.columns);
  list.replaceChildren(...data.tiles.map((tile, index) => draw(tile, index, data)));
  list.onclick = (event) => {
    const link = event.target.closest("a");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    setTriggerValue("open", Number(link.dataset.index));
  };
}

function draw({ said, note, right, href }, index, { sheet, tiles }) {
  const item = document.createElement("li");
  const tile = document.createElement(href ? "a" : "div");
  tile.className = right ? "tile right" : "tile wrong";
  if (href) Object.assign(tile, { href, title: "Open in the walk" });
  tile.dataset.index = index;
  const picture = document.createElement("span");
  picture.className = "picture";
  picture.role = "img";
  picture.ariaLabel = note;
  picture.style.backgroundImage = `url(data:image/png;base64,${sheet})`;
  picture.style.backgroundSize = `100% ${100 * tiles.length}%`;
  picture.style.backgroundPosition = `0 ${tiles.length > 1 ? (100 * index) / (tiles.length - 1) : 0}%`;
  tile.append(picture, text("said", `${right ? "✓" : "✗"} ${said}`), text("note", note));
  item.append(tile);
  return item;
}

function text(className, content) {
  const span = document.createElement("span");
  span.className = className;
  span.textContent = content;
  return span;
}
