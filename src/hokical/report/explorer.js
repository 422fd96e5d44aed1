// The controls, and what follows them.

const report = JSON.parse(document.getElementById("report-data").textContent);
const controls = document.getElementById("controls");
const methodNamed = (name) => report.methods.find((method) => method.name === name);
const uncalibrated = report.reference === null ? null : methodNamed(report.reference);
const several = report.methods.length > 1;
const reference = several ? uncalibrated : null; // alone it would be drawn beside itself
const headingOf = (method) => method === uncalibrated ? "Before calibration" : `After ${method.label}`;

const figures = {
  before: reference && html("figure", { id: "before" }),
  after: html("figure", { id: "after" }),
  risk: html("figure", { id: "risk-curves" }),
};
const ofEvent = report.methods[0].event !== null;
const eventFigures = ofEvent && {
  before: reference && html("figure", { id: "event-before" }),
  after: html("figure", { id: "event-after" }),
  distribution: html("figure", { id: "event-distribution" }),
  decision: html("figure", { id: "event-decision" }),
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

// Headline and lead are about the chosen method.
function showWords(method) {
  const texts = { h1: method.headline[0], "#finding": method.finding,
    "#details": method.headline[1], "#label-lead": method.label_headline };
  for (const [where, text] of Object.entries(texts)) {
    const place = document.querySelector(where);
    if (place) place.textContent = text;
  }
}

// Only tables that are wider than the page are said to scroll.
function markWide() {
  for (const hint of document.querySelectorAll(".sideways")) {
    const box = hint.closest("p").nextElementSibling;
    hint.hidden = box.scrollWidth <= box.clientWidth;
  }
}

// Fill the table `id` with rows of a table of groups, or of predicted labels.
function showTable(id, name, found) {
  document.getElementById(`by-${id === "classes" ? "class" : "group"}`).hidden = found === null;
  if (found === null) return;
  const cells = (row) => [count(row.n), percent(row.predicted), percent(row.observed),
    `${percent(row.low)} to ${percent(row.high)}`, row.flagged ? "miscalibrated" : ""];
  const rows = found.rows.map((row) => html("tr", {}, html("th", { scope: "row" }, row.full_name),
    ...cells(row).map((text) => html("td", {}, text))));
  const verdict = id === "classes" ? found.verdict.replace("group", "label") : found.verdict;
  document.querySelector(`#${id} tbody`).replaceChildren(...rows);
  const rest = found.n_left_out ? ` ${count(found.n_left_out)} with larger p-values are not shown.` : "";
  document.getElementById(`${id}-verdict`).textContent = `${name}: ${verdict}.${rest}`;
}

function drawEvent(method, shown) {
  if (reference) drawEventCurve(eventFigures.before, "Before calibration", reference);
  const facts = drawEventCurve(eventFigures.after, headingOf(method), method);
  drawDistribution(eventFigures.distribution, method);
  drawDecision(eventFigures.decision, shown);
  fillBands(document.getElementById("bands"), method);
  return facts;
}

function draw() {
  const state = choice();
  if (reference) drawReliability(figures.before, "Before calibration", reference, state);
  const facts = drawReliability(figures.after, headingOf(state.method), state.method, state);
  const shown = [{ method: state.method, role: "after" }];
  if (reference && state.method !== reference) shown.unshift({ method: reference, role: "before" });
  drawRisk(figures.risk, shown);
  if (ofEvent) drawEvent(state.method, shown);
  markRow(state.method.name);
  showWords(state.method);
  showTable("classes", state.method.label, state.method.classes);
  showTable("groups", state.method.label, state.method.groups);
  return `${state.method.label}: ${facts}`;
}

// Pictures are drawn in real pixels, so that their text stays readable on a narrow screen.
function redrawOnNewWidth() {
  let width = pair.clientWidth;
  new ResizeObserver(() => {
    if (pair.clientWidth === width || pair.clientWidth === 0) return;
    width = pair.clientWidth;
    draw();
    markWide();
  }).observe(pair);
}

const pair = document.getElementById("pair");
pair.append(...[figures.before, figures.after].filter(Boolean));
pair.classList.toggle("two", Boolean(reference));
document.getElementById("risk").append(figures.risk);
if (ofEvent) {
  const both = document.getElementById("event-pair");
  both.append(...[eventFigures.before, eventFigures.after].filter(Boolean));
  both.classList.toggle("two", Boolean(reference));
  for (const id of ["distribution", "decision"]) document.getElementById(id).append(eventFigures[id]);
  const place = document.getElementById("event-controls");
  place.append(document.getElementById("method").parentElement); // the choice is for all that follows
  place.hidden = !several;
  place.addEventListener("change", () => {
    document.getElementById("status").textContent = draw();
  });
  document.getElementById("event-legend").hidden = false;
}
document.getElementById("method").parentElement.hidden = !several;
controls.hidden = false;
document.getElementById("legend").hidden = false;
controls.addEventListener("change", () => {
  document.getElementById("status").textContent = draw();
});
controls.addEventListener("submit", (event) => event.preventDefault());
draw();
markWide();
redrawOnNewWidth();
