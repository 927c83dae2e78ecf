
const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
function look() {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim();
  const line = style.getPropertyValue("--line").trim();
  return { background: "transparent", view: { stroke: line },
    axis: { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line },
    legend: { labelColor: ink, titleColor: ink }, title: { color: ink }, rule: { color: ink },
    font: "system-ui, sans-serif" };
}
async function draw(place) {
  if (!place.clientWidth) return;
  try {
    if (place.view) { place.view.finalize(); }
    const result = await vegaEmbed(place, charts[place.dataset.chart],
      { actions: false, renderer: "svg", config: look() });
    place.view = result;
  } catch (error) { place.textContent = "This chart could not be drawn: " + error.message; }
}
const places = [...document.querySelectorAll(".chart")];
for (const place of places) {
  const box = place.closest("details");
  if (box) box.addEventListener("toggle", () => { if (box.open && !place.view) draw(place); });
  draw(place);
}
dark.addEventListener("change", () => places.forEach(draw));
function reveal() {
  const box = location.hash && document.getElementById(location.hash.slice(1));
  if (box instanceof HTMLDetailsElement) { box.open = true; box.scrollIntoView(); }
}
addEventListener("hashchange", reveal);
reveal();
const find = document.getElementById("find");
const others = document.getElementById("others");
const groups = others ? JSON.parse(document.getElementById("groups").textContent) : [];
function list(wanted) {
  const found = wanted ? groups.filter((group) => group[0].toLowerCase().includes(wanted)) : [];
  const lines = found.slice(0, 30).map((group) => `${group[0]}: ${group[1]}, in answers.parquet`);
  if (found.length > lines.length) lines.push(`and ${found.length - lines.length} more`);
  others.replaceChildren(...lines.map((line) => {
    const place = document.createElement("p");
    place.className = "note";
    place.textContent = line;
    return place;
  }));
}
if (find) find.addEventListener("input", () => {
  const wanted = find.value.toLowerCase();
  for (const box of document.querySelectorAll("details[data-name]"))
    box.hidden = !box.dataset.name.toLowerCase().includes(wanted);
  if (others) list(wanted);
});
