// Copies text, also where the page was not loaded over HTTPS and browsers offer no clipboard.

import { element } from "./dom.js";

// Tells on the button itself whether it worked.
export async function copyFrom(button, text) {
  const label = (button.dataset.label ??= button.textContent);
  button.textContent = (await copied(text)) ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { class: "away", readonly: "" }), focused = document.activeElement;
    field.value = text;
    document.body.append(field);
    field.select();
    const worked = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return worked;
  }
}
