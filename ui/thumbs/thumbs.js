// Buttons with pictures. A click reports its name; the page then says which one is current.

const drawn = new WeakMap(); // what each group of buttons shows now

export default function ({ parentElement, data: [data], setTriggerValue }) {
  const root = parentElement.querySelector(".thumbs");
  const text = JSON.stringify(data);
  if (drawn.get(root) === text) return;
  drawn.set(root, text);
  const focused = root.getRootNode().activeElement?.dataset?.name;
  root.ariaLabel = data.label;
  root.style.setProperty("--columns", data.columns);
  root.replaceChildren(...data.items.map((item) => button(item, item.name === data.current)));

  // One stop for the Tab key; the arrow keys go on from there.
  const buttons = [...root.children];
  buttons.find(({ dataset }) => dataset.name === focused)?.focus();
  const entry = buttons.find(({ ariaPressed }) => ariaPressed === "true") ?? buttons[0];
  for (const each of buttons) each.tabIndex = each === entry ? 0 : -1;

  root.onclick = (event) => {
    const chosen = event.target.closest("button");
    if (chosen) setTriggerValue("chosen", chosen.dataset.name);
  };
  root.onkeydown = (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -data.columns, ArrowDown: data.columns };
    const next = buttons[buttons.indexOf(event.target) + steps[event.key]];
    if (!next) return;
    event.preventDefault();
    for (const each of buttons) each.tabIndex = each === next ? 0 : -1;
    next.focus();
  };
}

function button({ name, title, source }, isCurrent) {
  const element = document.createElement("button");
  element.type = "button";
  element.title = title;
  element.dataset.name = name;
  element.ariaPressed = String(isCurrent);
  const image = document.createElement("img");
  image.src = source;
  image.alt = title;
  element.append(image);
  return element;
}
