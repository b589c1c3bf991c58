// What the reader chose to look at, in all charts at once and across updates: lanes that are pinned, how much curves are
// smoothed, which stretch of an axis is shown; and the bar from which it is chosen.

const kMostPinned = 6;
const view = {
  run: "run",
  lanes: [],
  pinned: [],
  smooth: 0,
  zoom: new Map(),  // by the name of the axis (epoch, step, round): [from, to]
};

// Pinned lanes keep their colours: those that the mean and the best lane do not have.
const pinStyle = (lane) => (view.pinned.includes(lane) ? `pinned c${2 + view.pinned.indexOf(lane)}` : "");

function togglePin(lane) {
  if (!view.lanes.includes(lane)) return;
  view.pinned = view.pinned.includes(lane) ? view.pinned.filter((each) => each !== lane) : [...view.pinned, lane].slice(-kMostPinned);
  redrawAll();
}

function zoomTo(axis, range) {
  if (range) view.zoom.set(axis, range);
  else view.zoom.delete(axis);
  redrawAll();
}

function redrawAll() {
  document.querySelectorAll("figure").forEach((node) => node.redraw && node.redraw(true));
  markPinned();
  showTools();
}

// What is no curve shows a pin by its class alone.
function markPinned() {
  document.querySelectorAll("[data-pin]").forEach((node) => node.setAttribute("aria-pressed", String(view.pinned.includes(Number(node.dataset.pin)))));
  document.querySelectorAll("[data-lane]").forEach((node) => node.classList.toggle("pinned", view.pinned.includes(Number(node.dataset.lane))));
}

// Debiased exponential average, as TensorBoard's; gaps stay gaps.
function smoothed(values) {
  if (view.smooth === 0) return values;
  let [sum, weight] = [0, 0];
  return values.map((value) => {
    if (!isNumber(value)) return value;
    sum = view.smooth * sum + (1 - view.smooth) * value;
    weight = view.smooth * weight + (1 - view.smooth);
    return sum / weight;
  });
}

// ---- the bar: made once, so that an update of a live page does not take it out of the reader's hand

const tools = { node: document.getElementById("tools"), smooth: null, pin: null, chips: null };

function showTools() {
  if (!tools.smooth) makeTools();
  const free = view.lanes.filter((lane) => !view.pinned.includes(lane));
  tools.pinLabel.hidden = view.lanes.length < 2;
  if (tools.pin.dataset.lanes !== free.join()) {
    tools.pin.dataset.lanes = free.join();
    tools.pin.replaceChildren(el("option", { value: "" }, "…"), ...free.map((lane) => el("option", { value: lane }, `lane ${lane}`)));
  }
  const zoomed = [...view.zoom].map(([axis, [from, to]]) =>
    chip(`${axis} ${count(from)}–${count(to)}`, `show all of the ${axis} axis`, "zoom", () => zoomTo(axis, null)));
  const pinned = view.pinned.map((lane) => chip(`lane ${lane}`, `unpin lane ${lane}`, `pin ${pinStyle(lane)}`, () => togglePin(lane)));
  tools.chips.replaceChildren(...pinned, ...zoomed);
  tools.node.hidden = false;
}

function chip(text, label, style, act) {
  const made = el("button", { type: "button", class: `chip ${style}`, "aria-label": label }, text, el("span", { "aria-hidden": "true" }, "×"));
  made.addEventListener("click", act);
  return made;
}

function makeTools() {
  tools.smooth = el("input", { type: "range", id: "smooth", min: 0, max: 0.95, step: 0.05, value: 0 });
  tools.smooth.addEventListener("input", () => {
    view.smooth = Number(tools.smooth.value);
    redrawAll();
  });
  tools.pin = el("select", { id: "pin" });
  tools.pin.addEventListener("change", () => tools.pin.value !== "" && togglePin(Number(tools.pin.value)));
  tools.pinLabel = el("label", { for: "pin" }, "Pin", tools.pin);
  tools.chips = el("span", { class: "chips" });
  tools.node.replaceChildren(el("label", { for: "smooth" }, "Smooth", tools.smooth), tools.pinLabel, tools.chips,
    el("span", { class: "hint" }, "drag across a chart to zoom, double-click for all of it; click a lane to pin it"));
}
