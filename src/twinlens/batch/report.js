// Every text of the batch goes into the page as a text, never as markup.
"use strict";
const PAGE = 60;
const SVG = "http://www.w3.org/2000/svg";
const about = JSON.parse(document.getElementById("about").textContent);
const records = [];
for (const chunk of document.querySelectorAll("script.records")) {
  for (const record of JSON.parse(chunk.textContent)) records.push(record);
  chunk.remove();
}

function made(tag, inside, style) {
  const element = document.createElement(tag);
  if (style) element.className = style;
  for (const one of Array.isArray(inside) ? inside : [inside]) {
    if (one !== null && one !== undefined && one !== "") element.append(one);
  }
  return element;
}

function text(value) {
  if (value === null || value === undefined) return "-";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function number(value, digits = 0) {
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

function picture(record) {
  if (!record.thumb) return made("div", record.none || "no picture", "none");
  const image = made("img");
  image.src = record.thumb;
  image.alt = "";
  image.decoding = "async";
  const frame = made("div", image, "picture");
  if (record.boxes.length) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 1 1");
    svg.setAttribute("preserveAspectRatio", "none");
    for (const [left, top, right, bottom] of record.boxes) {
      const box = document.createElementNS(SVG, "rect");
      box.setAttribute("x", left);
      box.setAttribute("y", top);
      box.setAttribute("width", right - left);
      box.setAttribute("height", bottom - top);
      svg.append(box);
    }
    frame.append(svg);
  }
  return frame;
}

function answer(value) {
  if (value === null || typeof value !== "object") return made("pre", text(value));
  if (Array.isArray(value)) return made("pre", JSON.stringify(value, null, 1));
  const list = made("dl");
  for (const [key, one] of Object.entries(value)) list.append(made("dt", key), made("dd", text(one)));
  return list;
}

function card(record) {
  const where = record.pages > 1 ? `${record.path}, page ${record.page}` : record.path;
  const parts = [picture(record), made("h2", where)];
  if (record.error) {
    parts.push(made("p", [made("b", record.error.code), ": " + record.error.message], "bad"));
    if (record.error.raw) {
      parts.push(made("details", [made("summary", "what the model wrote"), made("pre", record.error.raw)]));
    }
  } else {
    parts.push(answer(record.answer));
  }
  const said = [];
  if (record.time) said.push(`${number(record.time, 2)} s`);
  if (record.usage) said.push(`${text(record.usage.prompt_tokens)} + ${text(record.usage.completion_tokens)} tokens`);
  if (record.same_as) said.push(`copied from ${record.same_as}`);
  if (said.length) parts.push(made("p", said.join(" · "), "dim"));
  for (const one of record.warnings || []) parts.push(made("p", one, "dim"));
  return made("article", parts, record.error ? "card failed" : "card");
}

function words(record) {
  return JSON.stringify([record.path, record.answer, record.error]).toLowerCase();
}

const cards = document.getElementById("cards");
const kind = document.getElementById("kind");
const search = document.getElementById("search");
const place = document.getElementById("place");
const back = document.getElementById("back");
const on = document.getElementById("on");
let chosen = records;
let first = 0;

function show() {
  cards.replaceChildren(...chosen.slice(first, first + PAGE).map(card));
  const last = Math.min(first + PAGE, chosen.length);
  place.textContent = chosen.length ? `${number(first + 1)}–${number(last)} of ${number(chosen.length)}` : "none";
  back.disabled = first === 0;
  on.disabled = last >= chosen.length;
}

function choose() {
  const wanted = search.value.trim().toLowerCase();
  const which = kind.value;
  chosen = records.filter((record) => {
    if (which === "answered" && record.error) return false;
    if (which === "failed" && !record.error) return false;
    if (which.startsWith("code ") && (!record.error || record.error.code !== which.slice(5))) return false;
    return !wanted || words(record).includes(wanted);
  });
  first = 0;
  show();
}

function option(value, label) {
  const element = made("option", label);
  element.value = value;
  kind.append(element);
}

function turn(step) {
  first = Math.max(0, first + step);
  show();
  document.querySelector("nav").scrollIntoView();
}

document.title = `${about.task}: ${about.out}`;
document.getElementById("title").textContent = about.out;
document.getElementById("what").textContent =
  `Task ${about.task}, version ${about.version.slice(0, 12)}, weights ${about.weights.slice(0, 24)}; ${about.written}`;
const figures = document.getElementById("figures");
for (const [label, value, digits] of about.figures) {
  figures.append(made("div", [made("b", number(value, digits)), made("span", label)], "figure"));
}
for (const one of about.notes) document.getElementById("notes").append(made("p", one, "dim"));
option("all", `all (${number(records.length)})`);
option("answered", "answered");
option("failed", "failed");
for (const [code, count] of about.codes) option(`code ${code}`, `failed: ${code} (${number(count)})`);
kind.addEventListener("change", choose);
let waiting = 0;
search.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(choose, 200);
});
back.addEventListener("click", () => turn(-PAGE));
on.addEventListener("click", () => turn(PAGE));
show();
