// The controls, and what follows them.

const report = JSON.parse(document.getElementById("report-data").textContent);
const controls = document.getElementById("controls");
const methodNamed = (name) => report.methods.find((method) => method.name === name);
const reference = report.reference === null ? null : methodNamed(report.reference);

const figures = {
  before: reference && html("figure", { id: "before" }),
  after: html("figure", { id: "after" }),
  risk: html("figure", { id: "risk-curves" }),
};

const choice = () => ({
  method: methodNamed(document.getElementById("method").value),
  bins: document.getElementById("bins").value,
  scheme: controls.elements.scheme.value,
});

function markRow(name) {
  for (const row of document.querySelectorAll(".methods tbody tr"))
    if (row.dataset.method === name) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
}

function showClasses({ label: name, classes }) {
  const verdict = (row) => (row.flagged ? "miscalibrated" : "");
  const cells = (row) => [count(row.n), percent(row.predicted), percent(row.observed), verdict(row)];
  const rows = classes.rows.map((row) => html("tr", {}, html("th", { scope: "row" }, row.name),
    ...cells(row).map((text) => html("td", {}, text))));
  document.querySelector("#classes tbody").replaceChildren(...rows);
  const more = classes.n_groups - rows.length;
  const rest = more ? `; the ${rows.length} worst, ${count(more)} more are not shown` : "";
  document.getElementById("classes-of").textContent = `${name}${rest}`;
}

function draw() {
  const state = choice();
  if (reference) drawReliability(figures.before, "Before calibration", reference, state);
  const heading = state.method === reference ? "Before calibration" : `After ${state.method.label}`;
  const facts = drawReliability(figures.after, heading, state.method, state);
  const shown = [{ method: state.method, role: "after" }];
  if (reference && state.method !== reference) shown.unshift({ method: reference, role: "before" });
  drawRisk(figures.risk, shown);
  markRow(state.method.name);
  if (state.method.classes) showClasses(state.method);
  return `${state.method.label}: ${facts}`;
}

// Pictures are drawn in real pixels, so that their text stays readable on a narrow screen.
function redrawOnNewWidth() {
  let width = figures.after.clientWidth;
  new ResizeObserver(() => {
    if (figures.after.clientWidth === width || figures.after.clientWidth === 0) return;
    width = figures.after.clientWidth;
    draw();
  }).observe(figures.after);
}

document.getElementById("pair").append(...[figures.before, figures.after].filter(Boolean));
document.getElementById("risk").append(figures.risk);
controls.hidden = false;
document.getElementById("legend").hidden = false;
document.getElementById("by-class").hidden = report.methods.every(({ classes }) => classes === null);
controls.addEventListener("change", () => {
  document.getElementById("status").textContent = draw();
});
controls.addEventListener("submit", (event) => event.preventDefault());
draw();
redrawOnNewWidth();
