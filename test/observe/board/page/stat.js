"use strict";

// drawStat draws a panel of type stat: a number a series, as large as fits.
function drawStat(panel, place) {
  const o = panel.options || {};
  only(panel.title, o, ["reduceOptions", "colorMode", "graphMode", "textMode", "justifyMode", "orientation", "wideLayout", "showPercentChange", "percentChangeColorMode", "text"]);
  const mode = oneOf(panel.title, o.textMode, ["auto", "value", "value_and_name", "name"]);
  const paint = oneOf(panel.title, o.colorMode, ["value", "background", "background_solid", "none"]);
  oneOf(panel.title, o.graphMode, ["none"]);
  oneOf(panel.title, o.justifyMode, ["auto", "center"]);
  if (o.showPercentChange) problem(panel.title, "changes in percent are not drawn here");
  const fields = fieldsOf(panel);
  if (!fields.length) return nothing(panel, place);
  const values = document.createElement("div");
  values.className = "values" + (place.clientWidth < place.clientHeight * 2 || o.orientation === "horizontal" ? " down" : "");
  place.append(values);
  for (const f of fields) {
    const v = calculate(panel, o.reduceOptions?.calcs?.[0] || "lastNotNull", f);
    const c = f.colour || threshold(panel.title, f, v);
    const box = document.createElement("div");
    box.className = "value";
    if (paint.startsWith("background")) box.style.background = `linear-gradient(120deg, ${alpha(c, 0.85)}, ${c})`;
    box.style.color = paint === "value" ? c : paint === "none" ? hues.text : "#fff";
    const name = mode === "name" || mode === "value_and_name" || (mode === "auto" && fields.length > 1);
    const number = mode !== "name";
    if (name) box.append(textOf(f.name, number ? 0.6 : 1));
    if (number) box.append(textOf(shown(panel.title, f, v), 1));
    values.append(box);
    fit(box);
  }
}

function textOf(text, scale) {
  const s = document.createElement("span");
  s.textContent = text;
  s.style.fontSize = scale + "em";
  return s;
}

// fit makes a box's text as large as it can be.
function fit(box) {
  for (let size = 44; size > 9; size--) {
    box.style.fontSize = size + "px";
    if ([...box.children].every((c) => c.offsetWidth <= box.clientWidth - 12) && [...box.children].reduce((h, c) => h + c.offsetHeight, 0) <= box.clientHeight - 2) return;
  }
}
