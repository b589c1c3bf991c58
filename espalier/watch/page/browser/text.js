// Elements, and numbers as people read them.

const kSvg = "http://www.w3.org/2000/svg";

// Text is always added as text: nothing from a run becomes markup.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes, ...children) => fill(document.createElementNS(kSvg, tag), attributes, children);

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const minus = (text) => text.replace("-", "\u2212");
const grouped = (text) => text.replace(/\B(?=(\d{3})+$)/g, "\u202f");

function count(value) {
  return isNumber(value) ? minus(grouped(String(Math.round(value)))) : "–";
}

// 6 418, 94.8 k, 1.25 M
function compact(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size < 10000) return count(value);
  const [unit, name] = size < 999500 ? [1e3, "k"] : size < 999.5e6 ? [1e6, "M"] : [1e9, "G"];
  return `${minus((value / unit).toPrecision(3).replace(/e.*/, ""))}\u202f${name}`;
}

function plain(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return minus(value.toExponential(2).replace("e+", "e")).replace("e-", "e\u2212");
  return minus(String(Number(value.toPrecision(4))));
}

function percent(value, digits = 1) {
  return isNumber(value) ? `${minus((100 * value).toFixed(digits))}\u202f%` : "–";
}

function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value < 0.1) return `${plain(Number((1000 * value).toPrecision(3)))}\u202fms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)}\u202fs`;
  const whole = Math.round(value);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  if (hours >= 48) return `${Math.floor(hours / 24)}\u202fd ${hours % 24}\u202fh`;
  return hours > 0 ? `${hours}\u202fh ${minutes}\u202fmin` : `${minutes}\u202fmin ${whole % 60}\u202fs`;
}

// How an axis and the values on it are written. A tick knows the step to the next and the largest, so that all of an
// axis have one unit and as many digits as they need.
const digitsOf = (step) => Math.max(0, Math.min(8, Math.ceil(-Math.log10(step) - 1e-9 + (String(step / 10 ** Math.floor(Math.log10(step))).startsWith("2.5") ? 1 : 0))));
const inUnit = (value, step, size, name) => `${minus((value / size).toFixed(digitsOf(step / size)))}${name ? `\u202f${name}` : ""}`;

const asCount = { value: count, tick: count };
const asNumber = {
  value: plain,
  tick: (value, step, largest) => (value === 0 ? "0" : largest < 1e-3 || largest >= 1e6 ? minus(value.toExponential(1).replace("e+", "e")) : inUnit(value, step, 1, "")),
};
const asShare = { value: (value) => percent(value, 1), tick: (value, step) => inUnit(value, step, 0.01, "%") };
const signed = (value) => (isNumber(value) ? `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(1)}` : "–");
const asPoints = { value: signed, tick: (value, step) => inUnit(value, step, 1, "") };
// Shares of 1 that are told as points of a percentage.
const asPointShare = { value: (value) => signed(100 * value), tick: (value, step) => inUnit(value, step, 0.01, "") };
const asSeconds = {
  value: seconds,
  tick: (value, step, largest) => (value === 0 ? "0" : inUnit(value, step, ...(largest < 0.5 ? [0.001, "ms"] : largest < 300 ? [1, "s"] : largest < 10800 ? [60, "min"] : [3600, "h"]))),
};
const asSize = {
  value: count,
  tick: (value, step, largest) => inUnit(value, step, ...(largest < 10000 ? [1, ""] : largest < 1e6 ? [1e3, "k"] : largest < 1e9 ? [1e6, "M"] : [1e9, "G"])),
};

// "2026-01-02T03:04:05Z" -> "2 January 2026, 03:04 UTC"
function moment(text) {
  const date = new Date(text);
  if (!text || Number.isNaN(date.getTime())) return "";
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
  return `${day}, ${date.toISOString().slice(11, 16)} UTC`;
}

function valueText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value === "" ? "–" : value;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return minus(String(value));
  const parts = Array.isArray(value) ? value : Object.entries(value).map(([key, each]) => `${key} ${typeof each === "object" ? JSON.stringify(each) : each}`);
  return parts.map((each) => (typeof each === "object" ? valueText(each) : String(each))).join(", ");
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
const few = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
const words = (key) => key.replace(/^.*\//, "").replaceAll("_", " ");
