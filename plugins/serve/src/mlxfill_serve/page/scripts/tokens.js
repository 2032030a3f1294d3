// The raw tokens of a reply, each in the colour of its origin.

import { element } from "./dom.js";

export const NAMES = {
  sampled: "the model itself", template: "chat template", schema: "tool schema", echo: "stood earlier",
  ngram: "n-gram lookup", draft: "draft model", mtp: "MTP head", grammar: "grammar",
};

export const nameOf = (origin) => (Object.hasOwn(NAMES, origin) ? NAMES[origin] : origin);
export const classOf = (origin) => (Object.hasOwn(NAMES, origin) ? origin : "other");

// Appends the tokens that `container` does not show yet; those of other origins than `picked` are dim.
export function showTokens(container, tokens, picked) {
  for (const [origin, id, text] of tokens.slice(container.children.length)) {
    const token = element("span", { class: `t ${classOf(origin)}`, "data-origin": origin, title: `${nameOf(origin)} · id ${id}` }, text);
    token.classList.toggle("out", picked !== "" && picked !== origin);
    container.append(token);
  }
}

export function pickTokens(picked) {
  for (const token of document.querySelectorAll(".t[data-origin]")) {
    token.classList.toggle("out", picked !== "" && token.dataset.origin !== picked);
  }
}
