"use strict";
// A token is told of when it is pointed at, or reached with the arrow keys inside its answer.
for (const box of document.querySelectorAll(".tokens")) {
  const told = box.parentElement.querySelector("output");
  const tokens = [...box.children];
  let here = -1;
  const show = (index) => {
    tokens[here]?.classList.remove("here");
    here = Math.min(Math.max(index, 0), tokens.length - 1);
    const token = tokens[here];
    if (!token) return;
    token.classList.add("here");
    told.textContent = `token ${here + 1} of ${tokens.length}: ${token.title}`;
  };
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
  box.addEventListener("keydown", (event) => {
    if (event.key in steps) show(here + steps[event.key]);
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(tokens.length - 1);
    else return;
    event.preventDefault();
  });
  box.addEventListener("mouseover", (event) => {
    const index = tokens.indexOf(event.target);
    if (index >= 0) show(index);
  });
}
// A button of the legend leaves the tokens of one origin and dims all others.
const buttons = [...document.querySelectorAll(".legend button")];
for (const button of buttons) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const other of buttons) other.setAttribute("aria-pressed", String(on && other === button));
    document.body.classList.toggle("only", on);
    for (const token of document.querySelectorAll(".tokens .t")) {
      token.classList.toggle("wanted", on && token.dataset.origin === button.dataset.origin);
    }
  });
}
