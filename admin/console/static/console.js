// The pages work without this. With it they stay fresh, and keys move about.
"use strict";

// fresh takes the main part of the page anew, unless somebody is at work in it.
const seconds = Number(document.body.dataset.refresh || 0);
let failures = 0;
async function fresh() {
  if (document.hidden || busy()) return again();
  try {
    const answer = await fetch(location.href, { headers: { "X-Requested-With": "fetch" }, redirect: "error" });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (busy()) return again();
    const here = row && row.querySelector("a") && row.querySelector("a").href;
    document.querySelector("main").replaceWith(page.querySelector("main"));
    document.querySelector("footer").replaceWith(page.querySelector("footer"));
    row = here ? rows().find((r) => r.querySelector("a") && r.querySelector("a").href === here) || null : null;
    if (row) row.classList.add("here");
    failures = 0;
    if (!page.body.dataset.refresh) return;
  } catch (e) {
    failures++;
    const told = document.getElementById("fresh");
    if (told && failures === 2) told.append(" – the daemon does not answer");
  }
  again();
}
function again() {
  setTimeout(fresh, seconds * 1000 * Math.min(8, 1 + failures));
}
// busy: a form is being filled in, something is ticked, or text is selected.
function busy() {
  const at = document.activeElement;
  return (at && at.closest("main form") !== null) || document.querySelector("main input:checked[name=position]") !== null ||
    String(getSelection()) !== "" || document.getElementById("help").open;
}
if (seconds > 0) again();

let row = null;
const rows = () => Array.from(document.querySelectorAll("main table.rows tbody tr"));
function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const at = row ? all.indexOf(row) : step > 0 ? -1 : all.length;
  if (row) row.classList.remove("here");
  row = all[Math.max(0, Math.min(all.length - 1, at + step))];
  row.classList.add("here");
  const link = row.querySelector("a");
  if (link) link.focus();
  row.scrollIntoView({ block: "nearest" });
}

let going = false;
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea, dialog")) return;
  if (going) {
    going = false;
    const dlq = document.querySelector('nav a[href^="/dlq/"]');
    const to = { o: "/", d: dlq && dlq.getAttribute("href"), j: "/jobs", a: "/audit", s: "/system" }[e.key];
    if (to) location.href = to;
    return;
  }
  switch (e.key) {
    case "g": going = true; setTimeout(() => { going = false; }, 1500); break;
    case "j": move(1); break;
    case "k": move(-1); break;
    case "x": { const box = row && row.querySelector("input[type=checkbox]"); if (box) box.checked = !box.checked; break; }
    case "/": { const field = document.querySelector("main form.filter input, main form.filter select"); if (field) { field.focus(); e.preventDefault(); } break; }
    case "?": document.getElementById("help").showModal(); break;
  }
});
