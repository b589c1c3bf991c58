// The charts that are not curves: the growth timeline, the frontier, the confusion matrix.

// In the order of espalier/core/seed_stage.h.
const kStages = ["dormant", "germinated", "training", "blending", "holding", "fossilized", "pruned", "embargoed", "resetting"];
const kDarkStages = ["holding", "fossilized", "pruned"];  // text on them is white

// A row a slot of a lane; a step is the stretch that ends at its number.
function growthChart(detail, blueprints, stepName) {
  const rows = detail.growth;
  const used = new Set(rows.flatMap((row) => row.segments.map((segment) => segment[2])));
  const key = () => [...used].sort((a, b) => a - b).map((stage) => keyLine(kStages[stage], `box ${kStages[stage]}`));
  const lanes = new Set(rows.map((row) => row.lane));
  const last = detail.x[detail.x.length - 1];
  const first = detail.x[0] - 1;
  const rowHeight = rows.length <= 60 ? 16 : rows.length <= 160 ? 12 : 7;
  const about = `${few(rows.length, "slot", "slots")} of ${few(lanes.size, "lane", "lanes")} held a seed between ${stepName} ${count(first + 1)} and ${count(last)}; ${finalStages(rows, last)}.`;

  const draw = (width) => {
    const box = { left: 74, right: width - 10, top: 0, bottom: 4 };
    const [from, to] = view.zoom.has(stepName) ? [view.zoom.get(stepName)[0] - 1, view.zoom.get(stepName)[1]] : [first, last];
    const toX = linearScale(from, to, box.left, box.right);
    const isPinned = (row) => view.pinned.includes(row.lane);
    const ordered = [...rows.filter(isPinned), ...rows.filter((row) => !isPinned(row))];
    let y = rowHeight < 12 ? 6 : 0;  // a name is taller than such a row
    const svg = svgOf(width, 0);
    ordered.forEach((row, i) => {
      const isFirst = i === 0 || ordered[i - 1].lane !== row.lane;
      if (isFirst && i > 0) y += Math.max(3, rowHeight / 2);
      svg.append(...growthRow(row, { y, rowHeight, isFirst, box, toX, from, to }));
      y += rowHeight;
    });
    svg.setAttribute("viewBox", `0 0 ${width} ${Math.max(1, y)}`);
    svg.setAttribute("height", Math.max(1, y));
    svg.addEventListener("pointermove", (event) => tellSegment(event, svg, toX, stepName, blueprints));
    svg.addEventListener("pointerleave", () => {
      light(null);
      tip.hide();
    });
    svg.addEventListener("click", () => litLane !== null && togglePin(litLane));
    const axis = svgOf(width, 40);
    axis.setAttribute("aria-hidden", "true");
    drawBottomAxis(axis, box, toX, { label: stepName, format: asCount, isWhole: true });
    return [el("div", { class: "rows", tabindex: y > 560 ? "0" : null }, svg), axis];
  };

  function growthRow(row, { y, rowHeight, isFirst, box, toX, from: begin, to: end }) {
    const parts = [];
    const inner = rowHeight - (rowHeight > 8 ? 3 : 1);
    parts.push(shape("rect", { class: "row-band", x: box.left, y, width: Math.max(0, box.right - box.left), height: inner, "data-lane": row.lane }));
    if (isFirst && rowHeight >= 7) parts.push(shape("text", { class: "row-name", x: 0, y: y + Math.min(inner, 11), "data-lane": row.lane }, `lane ${row.lane}`));
    if (rowHeight >= 12) parts.push(shape("text", { x: box.left - 6, y: y + inner - 2.5, "text-anchor": "end" }, shortened(row.slot, 5)));
    for (const [from, to, stage, blueprint] of row.segments) {
      if (to <= begin || from - 1 >= end) continue;
      const [x0, x1] = [toX(Math.max(begin, from - 1)), toX(Math.min(end, to))];
      parts.push(shape("rect", { class: kStages[stage], x: x0.toFixed(1), y, width: Math.max(0.6, x1 - x0 - 0.5).toFixed(1), height: inner, rx: Math.min(1.5, (x1 - x0) / 4),
        "data-segment": JSON.stringify([row.lane, row.slot, from, to, stage, blueprint]) }));
      const name = blueprints[blueprint];
      if (name && rowHeight >= 12 && x1 - x0 > 6.4 * name.length + 8)
        parts.push(shape("text", { class: kDarkStages.includes(kStages[stage]) ? "on-dark" : "on-light", x: x0 + 4, y: y + inner - 3 }, name));
    }
    return parts;
  }
  const csv = () => [["lane", "slot", `first ${stepName}`, `last ${stepName}`, "stage", "blueprint"],
    ...rows.flatMap((row) => row.segments.map(([from, to, stage, blueprint]) => [row.lane, row.slot, from, to, kStages[stage], blueprints[blueprint] || ""]))];
  return figure({ title: "Seeds by lane and slot", name: "growth", unit: "stage after each " + stepName, key, about, draw, rows: csv });
}

const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function finalStages(rows, last) {
  const counts = new Map();
  for (const row of rows) {
    const segment = row.segments[row.segments.length - 1];
    if (segment && segment[1] === last) counts.set(segment[2], (counts.get(segment[2]) || 0) + 1);
  }
  const parts = [...counts].sort((a, b) => b[1] - a[1]).map(([stage, number]) => `${number} ${kStages[stage]}`);
  return parts.length ? `at the end ${parts.join(", ")}` : "at the end all are dormant";
}

function tellSegment(event, svg, toX, stepName, blueprints) {
  const text = event.target.getAttribute && event.target.getAttribute("data-segment");
  const band = event.target.getAttribute && event.target.getAttribute("data-lane");
  if (!text) {
    light(band === null ? null : Number(band));
    return tip.hide();
  }
  const [lane, slot, from, to, stage, blueprint] = JSON.parse(text);
  light(lane);
  const pairs = [["stage", kStages[stage]], [from === to ? stepName : `${stepName}s`, from === to ? count(from) : `${count(from)}–${count(to)}`]];
  if (blueprints[blueprint]) pairs.unshift(["seed", blueprints[blueprint]]);
  tip.show(event.clientX, event.clientY, `Lane ${lane}, slot ${slot}`, pairs);
}

// points: [parameters, accuracy, lane, round]
function frontierChart(frontier, hasRounds) {
  const { points, front, measure } = frontier;
  if (points.length < 2) return null;
  const xs = points.map((point) => point[0]);
  const isLog = wantsLog([xs]);
  const best = front[front.length - 1];
  const smallest = front[0];
  const about = `${few(frontier.all, "network", "networks")}; the frontier goes from ${compact(smallest[0])} parameters with ${percent(smallest[1])} to ${compact(best[0])} with ${percent(best[1])}.`;
  const lastRound = Math.max(1, ...points.map((point) => point[3]));
  const draw = (width) => {
    const height = 320;
    const svg = svgOf(width, height);
    const { toX, toY } = drawAxes(svg, width, height, {
      x: { range: isLog ? logRange([xs]) : rangeOf([xs], [0, Infinity]), label: "parameters", format: asSize, isLog },
      y: { range: rangeOf([points.map((point) => point[1])], [0, 1]), format: asShare },
    });
    const name = (point) => (hasRounds ? `Round ${count(point[3])}, lane ${point[2]}` : `Lane ${point[2]}`);
    const tell = (node, point) => {
      node.addEventListener("pointermove", (event) => {
        light(hasRounds ? null : point[2]);
        tip.show(event.clientX, event.clientY, name(point), [[measure, percent(point[1], 2)], ["parameters", count(point[0])]]);
      });
      node.addEventListener("pointerleave", () => {
        light(null);
        tip.hide();
      });
      if (!hasRounds) node.addEventListener("click", () => togglePin(point[2]));
      return node;
    };
    for (const point of points) {
      const dot = shape("circle", { class: "dot c0", cx: toX(point[0]).toFixed(1), cy: toY(point[1]).toFixed(1), r: 4.5, "data-lane": hasRounds ? null : point[2] });
      if (hasRounds) dot.style.fillOpacity = (0.12 + (0.6 * point[3]) / lastRound).toFixed(2);
      svg.append(tell(dot, point));
    }
    const steps = front.map((point, i) => (i === 0 ? `M${toX(point[0])} ${toY(point[1])}` : `H${toX(point[0])}V${toY(point[1])}`)).join("");
    svg.append(shape("path", { class: "front", d: steps }));
    for (const point of front) svg.append(tell(shape("circle", { class: "front-dot", cx: toX(point[0]), cy: toY(point[1]), r: 4.5 }), point));
    return svg;
  };
  const key = () => [keyLine(hasRounds ? "a lane at the end of a round; darker: later" : "a lane at its end", "dot c0 filled"), keyLine("frontier", "c1")];
  const rows = () => [["parameters", measure, "lane", "round"], ...points];
  return figure({ title: `${capital(measure)} by parameters`, name: "frontier", key, about, draw, rows });
}

function heatMap({ classes, confusion, mistakes }) {
  const size = classes.length;
  const totals = confusion.map((row) => row.reduce((sum, value) => sum + (value || 0), 0));
  const right = confusion.reduce((sum, row, i) => sum + (row[i] || 0), 0);
  const all = totals.reduce((sum, value) => sum + value, 0);
  const about = `${size} classes, ${count(right)} of ${count(all)} samples on the diagonal. ${mistakes.length ? `Most frequent mistake: ${mistakes[0][0]} taken for ${mistakes[0][1]}, ${count(mistakes[0][2])} of ${count(mistakes[0][3])}.` : "No mistakes."}`;
  const draw = (width) => {
    const longest = Math.max(...classes.map((name) => name.length));
    const left = Math.min(Math.round(6.6 * Math.min(longest, 18)) + 12, Math.round(width * 0.34));
    const cell = Math.max(2, Math.min(54, (width - left - 8) / size));
    const top = 6;
    const isLabelled = cell >= 11;
    const bottom = top + cell * size;
    const svg = svgOf(width, Math.ceil(bottom + (isLabelled ? left * 0.8 : 12) + 26));
    const letters = Math.floor((left - 10) / 6.4);
    classes.forEach((name, i) => {
      if (isLabelled) {
        svg.append(shape("text", { x: left - 7, y: top + (i + 0.5) * cell + 4, "text-anchor": "end" }, shortened(name, letters)));
        const x = left + (i + 0.5) * cell + 4;
        svg.append(shape("text", { x, y: bottom + 10, "text-anchor": "end", transform: `rotate(-50 ${x} ${bottom + 10})` }, shortened(name, letters)));
      }
      confusion[i].forEach((value, j) => {
        const share = totals[i] > 0 ? (value || 0) / totals[i] : 0;
        const [x, y] = [left + j * cell, top + i * cell];
        const rect = shape("rect", { class: "cell", x: x.toFixed(1), y: y.toFixed(1), width: (cell - (cell > 6 ? 1 : 0)).toFixed(1), height: (cell - (cell > 6 ? 1 : 0)).toFixed(1) });
        rect.style.fillOpacity = (0.04 + 0.96 * share).toFixed(3);
        rect.addEventListener("pointermove", (event) =>
          tip.show(event.clientX, event.clientY, name, [["taken for", classes[j]], ["samples", `${count(value)} of ${count(totals[i])}`], ["share", percent(share)]]));
        rect.addEventListener("pointerleave", () => tip.hide());
        svg.append(rect);
        if (cell >= 24 && value > 0)
          svg.append(shape("text", { class: share > 0.72 ? "cell-paper" : "cell-ink", x: x + cell / 2, y: y + cell / 2 + 4, "text-anchor": "middle", "pointer-events": "none" }, compact(value)));
      });
    });
    svg.append(shape("rect", { class: "cell-frame", x: left - 0.5, y: top - 0.5, width: cell * size, height: cell * size }));
    return svg;
  };
  return figure({ title: "Confusion on the test split", name: "confusion", unit: "a row a true class, a column an answer; the darker, the larger the share of its row", about, draw, rows: () => [["class", ...classes], ...confusion.map((row, i) => [classes[i], ...row])] });
}

// head: names of columns; rows: lists of cells, the first a name.
function table(caption, head, rows) {
  const cell = (text, i) => el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: i === 0 ? null : "number" }, text);
  return el("div", { class: "wide" }, el("table", null, caption ? el("caption", null, caption) : null,
    el("thead", null, el("tr", null, head.map((name, i) => el("th", { scope: "col", class: i === 0 ? null : "number" }, name)))),
    el("tbody", null, rows.map((row) => el("tr", null, row.map(cell))))));
}
