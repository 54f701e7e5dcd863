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

// The map of tiles has a square for each tile of an IPU, the darker the more bytes it holds.
const TILES_IN_A_ROW = 64;

function drawing(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

for (const map of document.querySelectorAll(".tiles")) {
  const form = document.querySelector("form[data-map]");
  const { ipu, tile, category } = form.elements;
  const tilesOfIpu = Number(form.dataset.map);
  const capacity = Number(map.dataset.bytes);
  const fullest = Number(map.dataset.fullest);
  const categories = JSON.parse(document.getElementById("tile-bytes").textContent).map(
    ([name, runs]) => [name, runs.flatMap(([bytes, length]) => Array(length).fill(bytes))],
  );
  const picture = map.querySelector("svg");
  const columns = Math.min(TILES_IN_A_ROW, tilesOfIpu);
  picture.setAttribute("viewBox", `0 0 ${columns} ${Math.ceil(tilesOfIpu / columns)}`);
  const squares = Array.from({ length: tilesOfIpu }, (_, place) => {
    const x = (place % columns) + 0.05;
    const square = drawing("rect", { x, y: Math.floor(place / columns) + 0.05, width: 0.9, height: 0.9 });
    square.append(drawing("title", {}));
    square.addEventListener("click", () => {
      tile.value = place;
      // A bubbling event, so that the table of values follows.
      tile.dispatchEvent(new Event("input", { bubbles: true }));
    });
    return square;
  });
  picture.append(...squares);

  const bytesOn = (place) => categories.map(([name, bytes]) => [name, bytes[place]]);
  const sum = (parts) => parts.reduce((whole, [, bytes]) => whole + bytes, 0);
  const show = () => {
    const shown = ipu?.value ? Number(ipu.value) : Math.floor(fullest / tilesOfIpu);
    const wanted = (parts) => parts.filter(([name]) => !category.value || name === category.value);
    const chosen = tile.value === "" ? fullest % tilesOfIpu : Number(tile.value);
    const sizes = squares.map((_, place) => sum(wanted(bytesOn(shown * tilesOfIpu + place))));
    // Of a single category, the tile with the most of it is the darkest.
    const most = category.value ? Math.max(...sizes, 1) : capacity;
    squares.forEach((square, place) => {
      square.style.fillOpacity = 0.06 + 0.94 * Math.min(sizes[place] / most, 1);
      square.classList.toggle("beyond", sizes[place] > capacity);
      square.classList.toggle("chosen", place === chosen);
      square.firstChild.textContent = `tile ${place}: ${sizes[place].toLocaleString("en")} bytes`;
    });
    const parts = bytesOn(shown * tilesOfIpu + chosen);
    const where = ipu ? `Tile ${chosen} of IPU ${shown}` : `Tile ${chosen}`;
    const words = parts.map(([name, bytes]) => `${name} ${bytes.toLocaleString("en")}`).join("; ");
    map.querySelector("p").textContent =
      `${where} at its fullest: ${sum(parts).toLocaleString("en")} of ${capacity.toLocaleString("en")} bytes: ${words}.`;
  };
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.querySelector("[data-tile]").addEventListener("click", show);
  map.hidden = false;
  show();
}

// The graph of operations shows one compute set between those whose results it takes and those
// that take its own, and finds others by words.
const MOST_FOUND = 30;

for (const form of document.querySelectorAll("form[data-operations]")) {
  const { layers, operations } = JSON.parse(document.getElementById("operation-graph").textContent);
  const section = form.closest("section");
  const part = (name) => section.querySelector(`[data-${name}]`);
  const takenBy = operations.map(() => []);
  operations.forEach(([, , , , , , , reads], position) => {
    for (const read of reads) if (typeof read === "number") takenBy[read]?.push(position);
  });
  const words = operations.map(([name, layer, family, phase, , writes, kinds]) =>
    [name, layers[layer], family, phase, ...writes, ...kinds].join(" ").toLowerCase(),
  );

  const item = (read) => {
    const line = document.createElement("li");
    if (typeof read !== "number" || !operations[read]) {
      line.textContent = typeof read === "number" ? `compute set ${read}` : read;
      return line;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = operations[read][0];
    button.addEventListener("click", () => choose(read));
    line.append(button, ` ${operations[read][5].join(", ")}`);
    return line;
  };
  const nothing = (text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  };
  const fill = (list, reads, empty) =>
    list.replaceChildren(...(reads.length ? reads.map(item) : [nothing(empty)]));
  const choose = (position) => {
    const [name, layer, family, phase, cycles, writes, kinds, reads] = operations[position];
    const title = document.createElement("strong");
    title.textContent = name;
    const lines = [
      layers[layer] && `layer ${layers[layer]}`,
      `${family}, ${phase}, ${cycles.toLocaleString("en")} cycles`,
      `number ${position} in the order of execution`,
      writes.length && `makes ${writes.join(", ")}`,
      `instructions of XLA: ${kinds.join(", ")}`,
    ].filter(Boolean);
    part("chosen").replaceChildren(
      ...[title, ...lines].map((line) => {
        const paragraph = document.createElement("p");
        paragraph.append(line);
        return paragraph;
      }),
    );
    fill(part("takes"), reads, "nothing");
    fill(part("taken"), takenBy[position], "no compute set; it may be a result");
    section.querySelector(".graph").hidden = false;
  };
  const find = () => {
    const wanted = form.elements.query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (one) => wanted.every((word) => words[one].includes(word));
    const all = Array.from(operations.keys()).filter(matches);
    const more = all.length > MOST_FOUND ? `, the first ${MOST_FOUND} of which are shown` : "";
    part("found").textContent = `${all.length.toLocaleString("en")} of ${operations.length.toLocaleString("en")} operations${more}`;
    section.querySelector(".found").replaceChildren(...all.slice(0, MOST_FOUND).map(item));
    if (all.length) choose(all[0]);
  };

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", find);
  for (const link of document.querySelectorAll("[data-operation]")) {
    if (!operations[link.dataset.operation]) continue;
    link.addEventListener("click", () => choose(Number(link.dataset.operation)));
  }
  form.hidden = false;
  // The compute set with the most cycles is what most people look for.
  const cycles = operations.map((one) => one[4]);
  choose(cycles.indexOf(cycles.reduce((a, b) => Math.max(a, b))));
}
