"use strict";

// Tables are sorted by a click on a heading: figures from large to small first, words from a to z.
function valueOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
}

function sortBy(heading) {
  const table = heading.closest("table");
  const body = table.tBodies[0];
  const column = heading.cellIndex;
  const first = heading.classList.contains("figure") ? "descending" : "ascending";
  const second = first === "descending" ? "ascending" : "descending";
  const order = heading.ariaSort === first ? second : first;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(b));
  const rows = Array.from(body.rows);
  rows.sort((a, b) => sign * compare(valueOf(a, column), valueOf(b, column)));
  body.append(...rows);
}

for (const heading of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sortBy(heading));
  heading.append(button);
}

// The timeline shows a window of the step; zooming and moving change the window.
for (const timeline of document.querySelectorAll(".timeline")) {
  const picture = timeline.querySelector("svg");
  const ticks = timeline.querySelector(".ticks");
  const whole = picture.viewBox.baseVal.width;
  const cycles = Number(timeline.dataset.cycles);
  const microseconds = (1e6 * cycles) / Number(timeline.dataset.hertz) / whole;
  // Nearer, float32 has not enough digits, and there is nothing shorter than 100 cycles.
  const least = Math.min(Math.max((100 * whole) / cycles, whole / 1000), whole);
  let start = 0;
  let width = whole;

  const show = (newStart, newWidth) => {
    width = Math.min(Math.max(newWidth, least), whole);
    start = Math.min(Math.max(newStart, 0), whole - width);
    picture.setAttribute("viewBox", `${start} 0 ${width} 100`);
    const digits = width * microseconds < 10 ? 3 : 1;
    ticks.replaceChildren(
      ...[0, 0.25, 0.5, 0.75, 1].map((part) => {
        const tick = document.createElement("li");
        tick.textContent = `${((start + part * width) * microseconds).toFixed(digits)} µs`;
        return tick;
      }),
    );
  };
  const zoom = (factor, centre) => show(start + (1 - factor) * centre * width, width * factor);

  for (const button of timeline.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => zoom(Number(button.dataset.zoom), 0.5));
  }
  for (const button of timeline.querySelectorAll("[data-move]")) {
    button.addEventListener("click", () => show(start + Number(button.dataset.move) * width, width));
  }
  timeline.querySelector("[data-whole]").addEventListener("click", () => show(0, whole));
  // A wheel alone scrolls the page, as everywhere.
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = picture.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, (event.clientX - box.left) / box.width);
  });
  timeline.querySelector(".controls").hidden = false;
  show(0, whole);
}

// The memory map shows the values of an IPU, a tile, and a moment in the step.
for (const form of document.querySelectorAll("form[data-map]")) {
  const tilesOfIpu = Number(form.dataset.map);
  const rows = Array.from(document.querySelectorAll("#map tbody tr"));
  const { ipu, tile, position } = form.elements;
  const note = form.querySelector("output");

  const isShown = ({ dataset }) => {
    // Tiles go on at 0 after the last one.
    const place = (Number(tile.value) - Number(dataset.tile) + tilesOfIpu) % tilesOfIpu;
    const now = Number(position.value);
    return (
      (!ipu?.value || ipu.value === dataset.ipu) &&
      (tile.value === "" || place < Number(dataset.tiles)) &&
      (position.value === "" || (Number(dataset.first) <= now && now <= Number(dataset.last)))
    );
  };
  const show = () => {
    let number = 0;
    let bytes = 0;
    for (const row of rows) {
      row.hidden = !isShown(row);
      if (row.hidden) continue;
      number += 1;
      bytes += Number(tile.value === "" ? row.dataset.bytes : row.dataset.onTile);
    }
    const where = tile.value === "" ? "" : " on that tile";
    note.textContent = `${number} of ${rows.length} values, ${bytes.toLocaleString("en")} bytes${where}`;
  };

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  // A form is as it was only after those who listen have heard of it.
  form.addEventListener("reset", () => setTimeout(show));
  form.querySelector("[data-tile]").addEventListener("click", (event) => {
    for (const field of [ipu, tile, position]) {
      if (field) field.value = event.target.dataset[field.name];
    }
    show();
  });
  form.hidden = false;
  show();
}
