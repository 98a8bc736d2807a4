"use strict";

// problems are what the dashboard says and this page does not draw.
const problems = [];

const problem = (where, what) => problems.push(`${where}: ${what}`);

// only tells of all keys of an object that are not among the known ones.
function only(where, object, known) {
  for (const key of Object.keys(object || {})) {
    if (!known.includes(key)) problem(where, `${key} is not drawn here`);
  }
}

// oneOf tells of a value that is none of the known ones.
function oneOf(where, value, known) {
  if (value !== undefined && !known.includes(value)) problem(where, `${value} is not drawn here, only ${known.join(", ")}`);
  return value ?? known[0];
}

window.addEventListener("error", (e) => problem("page", e.message));
