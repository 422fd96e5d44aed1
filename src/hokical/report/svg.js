// Small helpers: elements, scales, numbers in words, and the handle shared by all charts.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

const percent = (share) => `${(100 * share).toFixed(1)}%`;
const decimal = (value, digits = 4) => (value === null ? "infinite" : value.toFixed(digits));
const count = (n) => n.toLocaleString("en-US");

// A function from [0, top] to pixels.
const scale = (top, from, to) => (value) => from + ((to - from) * value) / top;

const line = (x1, y1, x2, y2, name) => svg("line", { x1, y1, x2, y2, class: name });

const label = (text, x, y, anchor = "middle") =>
  svg("text", { x, y, "text-anchor": anchor }, text);

// The name of an upright axis, beside its middle.
const sideLabel = (text, x, y) =>
  svg("text", { transform: `translate(${x} ${y}) rotate(-90)`, "text-anchor": "middle" }, text);

// A picture of `width` by `height` pixels; `title` says what it shows to those who cannot see it.
const canvas = (width, height, title) =>
  svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });

// Round steps for an axis from 0 to `top`, about five of them.
function ticks(top) {
  const rough = top / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, k) => k * step);
}

function nearest(values, wanted) {
  const off = values.map((value) => Math.abs(value - wanted));
  return off.indexOf(Math.min(...off));
}

// A slider with a line of text: the keyboard's, the finger's and the screen reader's way to a
// chart's numbers. `show(place)` marks the place in the chart and returns the text.
function handle(id, name, size, first, show) {
  const input = html("input", { type: "range", min: 0, max: size - 1, value: first, step: 1 });
  const output = html("output");
  const look = () => {
    const text = show(Number(input.value));
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  };
  input.addEventListener("input", look);
  look();
  input.id = id;
  const element = html("div", { class: "look" }, html("label", { for: id }, name), input, output);
  const move = (place) => {
    if (Number(input.value) === place) return;
    input.value = place;
    look();
  };
  return { element, move };
}

// Let the pointer, over `picture`, move the handle to the value nearest to it.
function follow(picture, values, toPixel, move) {
  const pixels = values.map(toPixel);
  const track = (event) => {
    const box = picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * picture.viewBox.baseVal.width;
    move(nearest(pixels, x));
  };
  picture.addEventListener("pointermove", track);
  picture.addEventListener("pointerdown", track);
}
