// Two classes: the probability of the event. Calibration curve, distribution, decision curve, bands.

const EVENT_ROOM = { left: 62, right: 12, top: 22, main: 260, bottom: 58 };
const eventRoom = (width) => (isNarrow(width) ? { ...EVENT_ROOM, left: 50, main: 150 } : EVENT_ROOM);

const share = (value, top) => `${+(100 * value).toFixed(top < 0.1 ? 1 : 0)}%`;

const path = (xs, ys) => `M${xs.map((v, k) => `${v.toFixed(1)} ${ys[k].toFixed(1)}`).join("L")}`;

function eventFrame(picture, x, y, top, words) {
  const values = ticks(top);
  for (const value of values.filter((_, k) => k % (x(top) - x(0) < 200 ? 2 : 1) === 0)) {
    const inwards = value > 0.97 * top ? 8 : 0;
    picture.append(line(x(0), y(value), x(top), y(value), "grid"));
    picture.append(label(share(value, top), x(0) - 6, y(value) + 4, "end"));
    picture.append(label(share(value, top), x(value) - inwards, y(0) + 26));
  }
  picture.append(line(x(0), y(0), x(0), y(top), "axis"), line(x(0), y(0), x(top), y(0), "axis"));
  picture.append(label(words.across, (x(0) + x(top)) / 2, y(0) + 46));
  picture.append(sideLabel(words.up, 12, (y(0) + y(top)) / 2));
}

function drawRug(picture, places, x, y, name) {
  for (const p of places) picture.append(line(x(p), y, x(p), y + 8, name));
}

const describeBand = (row) =>
  `Probability ${percent(row.lower)} to ${percent(row.upper)}: ${count(Math.round(row.n))} examples, mean ` +
  `probability ${percent(row.mean_probability)}, observed ${percent(row.observed)} (${percent(row.low)} to ` +
  `${percent(row.high)}).`;

// The smooth curve with its band, the points of bands, and rugs of both outcomes.
function drawEventCurve(figure, heading, method) {
  const { top, curve, bands, rug_events: events, rug_others: others } = method.event;
  const width = widthOf(figure);
  const room = eventRoom(width);
  const [x, y] = [scale(top, room.left, width - room.right), scale(top, room.top + room.main, room.top)];
  const value = (name) => method.event.estimates[name];
  const facts = `O:E ${value("oe_ratio")}, slope ${value("slope")}, AUROC ${value("auroc")}`;
  const picture = canvas(width, room.top + room.main + room.bottom,
    `Calibration curve of ${method.label}: ${facts}`);
  const clip = `event-${figure.id}`;
  const field = { x: x(0), y: room.top, width: x(top) - x(0), height: room.main };
  picture.append(svg("defs", {}, svg("clipPath", { id: clip }, svg("rect", field))));
  eventFrame(picture, x, y, top, { across: "predicted probability", up: "observed share" });
  picture.append(svg("path", { class: "honest", d: `M${x(0)} ${y(0)}L${x(top)} ${y(top)}` }));
  if (curve !== null) {
    const xs = curve.probability.map(x);
    const area = path([...xs, ...xs.slice().reverse()],
      [...curve.low.map(y), ...curve.high.slice().reverse().map(y)]);
    picture.append(svg("path", { class: "smooth-band", d: `${area}Z`, "clip-path": `url(#${clip})` }));
    picture.append(svg("path", { class: "curve after", d: path(xs, curve.observed.map(y)),
      "clip-path": `url(#${clip})` }));
  }
  for (const row of bands.rows.filter((each) => each.mean_probability <= top)) {
    const [centre, low, high] = [x(row.mean_probability), y(row.low), y(Math.min(row.high, top))];
    picture.append(svg("path", { class: "band", d: `M${centre - 3} ${low}h6m-3 0V${high}m-3 0h6` }));
    picture.append(svg("circle", { class: "dot", cx: centre, cy: y(Math.min(row.observed, top)), r: 3 }));
  }
  drawRug(picture, events.filter((p) => p <= top), x, room.top - 14, "rug event");
  drawRug(picture, others.filter((p) => p <= top), x, y(0) + 2, "rug other");
  const caption = html("figcaption", {}, html("h3", {}, heading), html("p", {}, facts));
  const cursor = svg("circle", { class: "cursor", r: 7 });
  picture.append(cursor);
  const slider = handle(`look-${figure.id}`, `Band of ${method.name}`, bands.rows.length, 0, (k) => {
    const row = bands.rows[k];
    fill(cursor, { cx: x(Math.min(row.mean_probability, top)), cy: y(Math.min(row.observed, top)) }, []);
    return describeBand(row);
  });
  follow(picture, bands.rows.map((row) => row.mean_probability), x, slider.move);
  figure.replaceChildren(caption, picture, slider.element);
  return facts;
}

// Shares of the rows with the event above the line, of those without below it.
function drawDistribution(figure, method) {
  const { top, edges, events, others } = method.event;
  const width = figure.clientWidth;
  const half = 90;
  const most = Math.max(...events, ...others, 1e-9);
  const x = scale(top, EVENT_ROOM.left, width - EVENT_ROOM.right);
  const height = scale(most, 0, half);
  const picture = canvas(width, 2 * half + 80, `Distribution of probabilities by outcome, ${method.label}`);
  const middle = half + 16;
  const bar = (k, from, size, name) => svg("rect", { class: name, x: x(edges[k]) + 0.5, y: from,
    width: Math.max(x(edges[k + 1]) - x(edges[k]) - 1, 1), height: Math.max(size, 0) });
  picture.append(sideLabel("share of examples", 14, middle));
  for (const value of ticks(most).filter((v) => v > 0)) {
    for (const side of [-1, 1]) {
      const tick = middle + side * height(value);
      picture.append(line(x(0), tick, x(top), tick, "grid"));
      picture.append(label(share(value, most), x(0) - 6, tick + 4, "end"));
    }
  }
  events.forEach((v, k) => picture.append(bar(k, middle - height(v), height(v), "bar-event")));
  others.forEach((v, k) => picture.append(bar(k, middle, height(v), "count")));
  picture.append(line(x(0), middle, x(top), middle, "axis"));
  for (const value of ticks(top)) {
    picture.append(label(share(value, top), x(value) - (value > 0.97 * top ? 8 : 0), 2 * half + 36));
  }
  picture.append(label("predicted probability", (x(0) + x(top)) / 2, 2 * half + 56));
  picture.append(label("with the event", x(top), 14, "end"));
  picture.append(label("without", x(top), 2 * half + 14, "end"));
  figure.replaceChildren(picture);
}

// Net benefit of treating by each method, all, and none.
function drawDecision(figure, shown) {
  const { top } = shown[0].method.event;
  const first = shown[0].method.event.decision;
  const width = figure.clientWidth;
  const room = { ...EVENT_ROOM, left: 68, top: 10, bottom: 44 };
  const most = 1.1 * Math.max(1e-6, ...shown.flatMap(({ method }) => method.event.decision.net_benefit),
    first.treat_all[0]);
  const x = scale(top, room.left, width - room.right);
  const least = -0.15 * most;
  const y = (value) => room.top + room.main * (1 - (Math.max(value, least) - least) / (most - least));
  const picture = canvas(width, room.top + room.main + room.bottom, "Net benefit by threshold");
  for (const value of ticks(most)) {
    picture.append(line(x(0), y(value), x(top), y(value), "grid"));
    picture.append(label(+value.toPrecision(2), x(0) - 6, y(value) + 4, "end"));
  }
  for (const value of ticks(top)) {
    picture.append(label(share(value, top), x(value) - (value > 0.97 * top ? 8 : 0), y(least) + 16));
  }
  picture.append(label("threshold of the probability", (x(0) + x(top)) / 2, y(least) + 36));
  picture.append(sideLabel("net benefit", 14, room.top + room.main / 2));
  const xs = first.threshold.map(x);
  const all = first.treat_all.findIndex((v) => v < least);
  const kept = all < 0 ? xs.length : all + 1;
  picture.append(line(x(0), y(0), x(top), y(0), "axis"));
  picture.append(svg("path", { class: "honest", d: path(xs.slice(0, kept), first.treat_all.slice(0, kept).map(y)) }));
  for (const { method, role } of shown) {
    picture.append(svg("path", { class: `curve ${role}`, d: path(xs, method.event.decision.net_benefit.map(y)) }));
  }
  const cursor = line(0, y(most), 0, y(least), "cursor");
  picture.append(cursor);
  const start = Math.max(0, nearest(first.threshold, first.prevalence));
  const slider = handle("look-decision", "Threshold", xs.length, start, (k) => {
    fill(cursor, { x1: xs[k], x2: xs[k] }, []);
    const gains = shown.map(({ method }) =>
      `${method.label}: ${method.event.decision.net_benefit[k].toFixed(4)}`);
    return `At ${percent(first.threshold[k])}, net benefit of ${gains.join("; ")}; of treating all ` +
      `${first.treat_all[k].toFixed(4)}, none 0.`;
  });
  follow(picture, first.threshold, x, slider.move);
  const keys = shown.map(({ method, role }) =>
    html("li", {}, html("i", { class: `key ${role}` }), ` ${method.label}`));
  const other = [html("li", {}, html("i", { class: "key line" }), " treat all"),
    html("li", {}, html("i", { class: "key solid" }), " treat none")];
  figure.replaceChildren(html("ul", { class: "legend" }, ...keys, ...other), picture, slider.element);
}

function fillBands(table, method) {
  const rows = method.event.bands.rows.map((row) => {
    const cells = [count(Math.round(row.n)), count(Math.round(row.events)), percent(row.mean_probability),
      percent(row.observed), `${percent(row.low)} to ${percent(row.high)}`,
      row.p_value < 1e-4 ? "< 0.0001" : row.p_value.toFixed(4), row.flagged ? "miscalibrated" : ""];
    const band = `${percent(row.lower)} to ${percent(row.upper)}`;
    return html("tr", {}, html("th", { scope: "row" }, band), ...cells.map((text) => html("td", {}, text)));
  });
  table.querySelector("tbody").replaceChildren(...rows);
  const { hosmer_lemeshow: statistic, p_value: p } = method.event.bands;
  document.getElementById("bands-verdict").textContent = statistic === null ? "" :
    `${method.label}: Hosmer-Lemeshow ${statistic.toFixed(2)}, p-value ${p.toPrecision(2)}.`;
}
