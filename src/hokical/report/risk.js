// The risk-coverage curves of one method and of the model as it came.

const FIELD = { left: 64, right: 12, top: 10, height: 260, bottom: 40 };

// Below 5% coverage a risk is that of a handful of examples; it must not set the axis.
const readableTop = (curve) =>
  Math.max(0, ...curve.risk.filter((_, k) => curve.coverage[k] >= 0.05));

function curvePath(curve, x, y) {
  const points = curve.coverage.map((c, k) => `${x(c).toFixed(1)} ${y(curve.risk[k]).toFixed(1)}`);
  return `M${points.join("L")}`;
}

// The curve's own point that first covers as much; points are never interpolated.
const reaching = (curve, coverage) => {
  const k = curve.coverage.findIndex((c) => c >= coverage - 1e-9);
  return k < 0 ? curve.coverage.length - 1 : k;
};

function riskFrame(picture, x, y, top) {
  for (const value of ticks(top)) {
    picture.append(line(x(0), y(value), x(1), y(value), "grid"));
    picture.append(label(`${+(100 * value).toPrecision(3)}%`, x(0) - 6, y(value) + 4, "end"));
  }
  for (const value of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    const inwards = value === 1 ? 8 : 0; // or the last label would be cut
    picture.append(label(`${Math.round(100 * value)}%`, x(value) - inwards, y(0) + 16));
  }
  picture.append(line(x(0), y(0), x(1), y(0), "axis"));
  picture.append(label("coverage, the most confident first", (x(0) + x(1)) / 2, y(0) + 34));
  picture.append(sideLabel("risk: share of predictions wrong", 14, FIELD.top + FIELD.height / 2));
}

function describeRisk(methods, coverage) {
  const parts = methods.map((method) => {
    const k = reaching(method.risk, coverage);
    const { coverage: covers, risk, threshold } = method.risk;
    return (
      `${method.label}: the most confident ${percent(covers[k])}, at ` +
      `${threshold[k].toFixed(3)} ` +
      `or more, ${percent(risk[k])} of them wrong`
    );
  });
  return `${parts.join("; ")}.`;
}

function riskLegend(shown) {
  const items = shown.map(({ method, role }) => {
    const text = ` ${method.label} (area ${decimal(method.risk.area)})`;
    return html("li", {}, html("i", { class: `key ${role}` }), text);
  });
  return html("ul", { class: "legend" }, ...items);
}

function riskPicture(shown, width) {
  const height = FIELD.top + FIELD.height + FIELD.bottom;
  const top = 1.08 * Math.max(1e-3, ...shown.map(({ method }) => readableTop(method.risk)));
  const x = scale(1, FIELD.left, width - FIELD.right);
  const y = scale(top, FIELD.top + FIELD.height, FIELD.top);
  const title = `Risk against coverage. ${describeRisk(shown.map((s) => s.method), 0.8)}`;
  const picture = canvas(width, height, title);
  const field = { x: x(0), y: FIELD.top, width: x(1) - x(0) + 6, height: FIELD.height };
  picture.append(svg("defs", {}, svg("clipPath", { id: "field" }, svg("rect", field))));
  riskFrame(picture, x, y, top);
  for (const { method, role } of shown) {
    const d = curvePath(method.risk, x, y);
    picture.append(svg("path", { class: `curve ${role}`, d, "clip-path": "url(#field)" }));
  }
  return { picture, x, y };
}

// Fill `figure`; `shown` lists methods with their role, "before" or "after".
function drawRisk(figure, shown) {
  const { picture, x, y } = riskPicture(shown, figure.clientWidth);
  const cursor = line(0, FIELD.top, 0, FIELD.top + FIELD.height, "cursor");
  const points = shown.map(({ role }) => svg("circle", { class: `point ${role}`, r: 4.5 }));
  picture.append(cursor, ...points);
  const coverages = Array.from({ length: 100 }, (_, k) => (k + 1) / 100);
  const slider = handle("look-risk", "Share answered", coverages.length, 79, (place) => {
    fill(cursor, { x1: x(coverages[place]), x2: x(coverages[place]) }, []);
    shown.forEach(({ method }, k) => {
      const at = reaching(method.risk, coverages[place]);
      fill(points[k], { cx: x(method.risk.coverage[at]), cy: y(method.risk.risk[at]) }, []);
    });
    return describeRisk(shown.map((s) => s.method), coverages[place]);
  });
  follow(picture, coverages, x, slider.move);
  figure.replaceChildren(riskLegend(shown), picture, slider.element);
}
