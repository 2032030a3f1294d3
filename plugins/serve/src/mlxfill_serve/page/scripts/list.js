// The list of conversations: open, rename, delete.

import { titleOf } from "./conversation.js";
import { at, element } from "./dom.js";

// `on`: { open, rename, remove }, each called with a conversation; `rename` also with the new title.
export function showList(conversations, current, on) {
  at("conversations").replaceChildren(...conversations.map((each) => entry(each, each.id === current.id, on)));
  at("no-conversations").hidden = conversations.length > 0;
}

export function focusEntry(id) {
  (document.querySelector(`#conversations [data-id="${CSS.escape(id)}"] .open`) ?? at("fresh")).focus();
}

function entry(conversation, isCurrent, on) {
  const title = titleOf(conversation);
  const open = element("button", { type: "button", class: "open", title, "aria-current": isCurrent ? "true" : undefined }, title);
  const rename = element("button", { type: "button", class: "rename", "aria-label": `Rename “${title}”`, title: "Rename" }, "✎");
  const remove = element("button", { type: "button", class: "remove", "aria-label": `Delete “${title}”`, title: "Delete" }, "✕");
  const item = element("li", { "data-id": conversation.id }, open, rename, remove);
  open.addEventListener("click", () => on.open(conversation));
  rename.addEventListener("click", () => edit(item, conversation, on));
  remove.addEventListener("click", () => {
    if (confirm(`Delete “${title}”?`)) on.remove(conversation);
  });
  return item;
}

function edit(item, conversation, on) {
  const field = element("input", { "aria-label": "Title", maxlength: 80 });
  const form = element("form", { class: "title" }, field);
  let done = false;
  const finish = (title) => {
    if (done) return;   // leaving the field after Enter is no second change
    done = true;
    on.rename(conversation, title);
  };
  field.value = titleOf(conversation);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    finish(field.value.trim());
  });
  field.addEventListener("blur", () => finish(field.value.trim()));
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    finish(conversation.title);
  });
  item.replaceChildren(form);
  field.select();
}
