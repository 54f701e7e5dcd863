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
  const whole = Number(timeline.dataset.cycles);
  const microseconds = 1e6 / Number(timeline.dataset.hertz);
  let start = 0;
  let width = whole;

  const show = (newStart, newWidth) => {
    width = Math.min(Math.max(newWidth, 100), whole);
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
