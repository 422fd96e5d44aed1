// The reliability diagram of one method: bars of accuracy, gaps, bands, and a strip of counts.

const ROOMS = {
  wide: { left: 56, right: 10, top: 8, main: 230, between: 36, strip: 40, bottom: 36 },
  narrow: { left: 40, right: 10, top: 8, main: 140, between: 34, strip: 28, bottom: 24 },
};
const isNarrow = (width) => width < 260; // half a phone's screen
const roomFor = (width) => (isNarrow(width) ? ROOMS.narrow : ROOMS.wide);

function describeBin(bins, k) {
  const right = bins.accuracy[k];
  const off = 100 * (bins.confidence[k] - right);
  const points = Math.abs(off).toFixed(1);
  const side = off > 0 ? "overconfident" : "underconfident";
  const verdict = points === "0.0" ? "calibrated" : `${points} points ${side}`;
  return (
    `Confidence ${bins.low[k].toFixed(4)} to ${bins.high[k].toFixed(4)}: ` +
    `${count(bins.count[k])} examples, confidence ${percent(bins.confidence[k])}, accuracy ` +
    `${percent(right)} (${percent(bins.accuracy_low[k])} to ${percent(bins.accuracy_high[k])}): ` +
    `${verdict}.`
  );
}

function drawFrame(picture, x, y, width) {
  const room = roomFor(width);
  for (const value of isNarrow(width) ? [0, 0.5, 1] : [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    picture.append(line(x(0), y(value), x(1), y(value), "grid"));
    picture.append(label(value.toFixed(1), x(0) - 6, y(value) + 4, "end"));
    picture.append(label(value.toFixed(1), x(value), room.top + room.main + 15));
  }
  const foot = room.top + room.main + room.between + room.strip;
  picture.append(label("confidence", (x(0) + x(1)) / 2, foot + 18));
  picture.append(sideLabel("accuracy", 12, room.top + room.main / 2));
  picture.append(line(x(0), y(0), x(0), y(1), "axis"), line(x(0), y(0), x(1), y(0), "axis"));
}

function drawBin(bins, k, x, y, hatch) {
  const right = bins.accuracy[k];
  const stated = bins.confidence[k];
  const left = x(bins.low[k]);
  const width = Math.max(x(bins.high[k]) - left, 1.5); // a bin of one confidence must be seen too
  const thin = width < 4 ? " thin" : "";
  const block = (from, to, look) => {
    const height = Math.abs(y(from) - y(to));
    return svg("rect", { x: left, width, y: y(Math.max(from, to)), height, ...look });
  };
  const [low, high] = [y(bins.accuracy_low[k]), y(bins.accuracy_high[k])];
  const centre = x(stated);
  return svg("g", { class: "bin" },
    block(0, right, { class: `bar${thin}` }),
    block(right, stated, { class: "gap", fill: `url(#${hatch})` }),
    svg("path", { class: "band", d: `M${centre - 3} ${low}h6m-3 0V${high}m-3 0h6` }),
    svg("circle", { class: "dot", cx: centre, cy: y(right), r: 2.5 }));
}

function drawCounts(picture, bins, x, width) {
  const room = roomFor(width);
  const base = room.top + room.main + room.between + room.strip;
  const most = Math.max(...bins.count);
  bins.count.forEach((n, k) => {
    const height = Math.max((room.strip * n) / most, 1);
    const wide = Math.max(x(bins.high[k]) - x(bins.low[k]) - 1, 1.5);
    const place = { x: x(bins.low[k]), y: base - height };
    picture.append(svg("rect", { class: "count", ...place, width: wide, height }));
  });
  picture.append(line(x(0), base, x(1), base, "axis"));
  const text = isNarrow(width) ? `at most ${count(most)}` : `examples, at most ${count(most)} in a bin`;
  picture.append(label(text, x(0), base - room.strip - 6, "start"));
}

function hatching(id) {
  const size = { width: 6, height: 6, patternUnits: "userSpaceOnUse" };
  const pattern = { id, ...size, patternTransform: "rotate(45)" };
  return svg("defs", {}, svg("pattern", pattern, line(0, 0, 0, 6, "hatch")));
}

function reliabilityPicture(id, title, bins, width) {
  const room = roomFor(width);
  const height = room.top + room.main + room.between + room.strip + room.bottom;
  const x = scale(1, room.left, width - room.right);
  const y = scale(1, room.top + room.main, room.top);
  const picture = canvas(width, height, title);
  picture.append(hatching(`hatch-${id}`));
  drawFrame(picture, x, y, width);
  bins.count.forEach((_, k) => picture.append(drawBin(bins, k, x, y, `hatch-${id}`)));
  picture.append(svg("path", { class: "honest", d: `M${x(0)} ${y(0)}L${x(1)} ${y(1)}` }));
  drawCounts(picture, bins, x, width);
  return { picture, x, y };
}

function binTable(bins) {
  const head = ["from", "to", "examples", "confidence", "accuracy", "interval"];
  const rows = bins.count.map((n, k) => [
    bins.low[k].toFixed(4), bins.high[k].toFixed(4), count(n), percent(bins.confidence[k]),
    percent(bins.accuracy[k]), `${percent(bins.accuracy_low[k])} to ${percent(bins.accuracy_high[k])}`,
  ]);
  const cells = (tag, texts, extra) =>
    html("tr", {}, ...texts.map((text) => html(tag, extra, text)));
  const table = html("table", {}, html("thead", {}, cells("th", head, { scope: "col" })),
    html("tbody", {}, ...rows.map((row) => cells("td", row, {}))));
  const reach = { class: "scroll", tabindex: 0, role: "region", "aria-label": "bins" };
  const region = html("div", reach, table);
  return html("details", {}, html("summary", {}, "The same as a table"), region);
}

// Of a figure that is spread over the grid's cells, half of the grid less the gap.
const widthOf = (figure) => figure.clientWidth || (figure.parentElement.clientWidth - 12) / 2;

// Fill `figure` with the diagram of `method`; its numbers stand in the caption and the table too.
function drawReliability(figure, heading, method, state) {
  const bins = method.reliability[state.scheme][state.bins];
  const { mean_confidence: confidence, accuracy } = method.scores;
  const facts =
    `confidence ${percent(confidence.value)}, accuracy ${percent(accuracy.value)}, ECE ${decimal(bins.ece)} over ` +
    `${state.bins} bins of equal ${state.scheme}`;
  const { picture, x, y } = reliabilityPicture(
    figure.id, `Reliability diagram of ${method.label}: ${facts}`, bins, widthOf(figure));
  const cursor = svg("rect", { class: "cursor", y: y(1), height: y(0) - y(1) });
  const [id, name, size] = [`look-${figure.id}`, `Bin of ${method.name}`, bins.count.length];
  const slider = handle(id, name, size, size - 1, (k) => {
    cursor.setAttribute("x", x(bins.low[k]) - 1.5);
    cursor.setAttribute("width", Math.max(x(bins.high[k]) - x(bins.low[k]), 1.5) + 3);
    return describeBin(bins, k);
  });
  picture.append(cursor);
  follow(picture, bins.confidence, x, slider.move);
  const open = figure.querySelector("details")?.open;
  const caption = html("figcaption", {}, html("h3", {}, heading), html("p", {}, facts));
  figure.replaceChildren(caption, picture, slider.element, binTable(bins));
  figure.querySelector("details").open = Boolean(open);
  return facts;
}
