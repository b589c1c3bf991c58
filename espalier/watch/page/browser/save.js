// A chart as a file: its numbers as CSV, its picture as PNG.

function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = (chart, ending) => `${view.run}-${chart}`.replace(/[^\p{L}\p{N}._-]+/gu, "-") + ending;

// A field that a spreadsheet would take for a formula stays text.
function csvField(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvText = (rows) => rows.map((row) => row.map(csvField).join(",") + "\r\n").join("");

function saveCsv(chart, rows) {
  download(fileName(chart, ".csv"), new Blob([csvText(rows)], { type: "text/csv" }));
}

const kDrawn = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-family", "visibility"];

// A copy that looks the same without the page's style.
function plainCopy(node) {
  const copy = node.cloneNode(true);
  const [from, to] = [[node, ...node.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((each, i) => {
    const style = getComputedStyle(each);
    to[i].removeAttribute("class");
    to[i].removeAttribute("style");
    for (const name of kDrawn) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  return copy;
}

// The caption, the key and the drawings one below the other.
function pictureOf(made) {
  const ink = getComputedStyle(document.body);
  const svgs = [...made.querySelectorAll(".plot svg")];
  const width = Math.max(...svgs.map((svg) => svg.getBoundingClientRect().width)) + 24;
  const whole = shape("svg", { xmlns: kSvg, "font-family": ink.fontFamily });
  const text = (x, y, size, weight, words, fill) => shape("text", { x, y, "font-size": size, "font-weight": weight, fill: fill || ink.color }, words);
  whole.append(text(12, 24, 14, 600, made.querySelector("figcaption .name").textContent));
  let [x, y] = [12, 44];
  for (const entry of made.querySelectorAll(".key > span")) {
    const mark = getComputedStyle(entry.querySelector("i"));
    const words = entry.textContent;
    const taken = 34 + 7 * words.length;
    if (x + taken > width && x > 12) [x, y] = [12, y + 18];
    const isBox = entry.querySelector("i").classList.contains("box");
    whole.append(shape("rect", { x, y: isBox ? y - 9 : y - 5, width: 14, height: isBox ? 10 : 2.5, fill: isBox ? mark.backgroundColor : mark.color }), text(x + 20, y, 12, 400, words));
    x += taken;
  }
  y += x > 12 ? 12 : -8;
  for (const svg of svgs) {
    const copy = plainCopy(svg);
    const { width: wide, height } = svg.getBoundingClientRect();
    for (const [name, value] of Object.entries({ x: 12, y, width: wide, height })) copy.setAttribute(name, value);
    whole.append(copy);
    y += height;
  }
  const height = Math.ceil(y + 12);
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) whole.setAttribute(name, value);
  whole.prepend(shape("rect", { width, height, fill: ink.backgroundColor }));
  return { text: new XMLSerializer().serializeToString(whole), width, height };
}

function savePng(chart, made) {
  const { text, width, height } = pictureOf(made);
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = el("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => blob && download(fileName(chart, ".png"), blob), "image/png");
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function saveButtons(chart, made, rows) {
  const button = (text, label, act) => {
    const node = el("button", { type: "button", "aria-label": label, title: label }, text);
    node.addEventListener("click", act);
    return node;
  };
  return el("span", { class: "save" }, rows ? button("CSV", "download the numbers as CSV", () => saveCsv(chart, rows())) : null,
    button("PNG", "download the picture as PNG", () => savePng(chart, made)));
}
