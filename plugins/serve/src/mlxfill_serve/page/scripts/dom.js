// Small pieces for building the page's elements.  Text always enters as text, never as HTML.

export const at = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Makes these the children.  Those that are children already are not moved: they keep their scroll
// position, their selection and the focus.
export function place(parent, wanted) {
  for (const child of [...parent.children]) if (!wanted.includes(child)) child.remove();
  wanted.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
}

// One child a key, in this order.  A child that exists already stays the same element, so that it
// keeps the focus.
export function arrange(parent, keys, make) {
  const present = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  const wanted = keys.map((key) => present.get(key) ?? make(key));
  if (wanted.length === present.size && wanted.every((child, i) => child === parent.children[i])) return;
  wanted.forEach((child, i) => { child.dataset.key = keys[i]; });
  const focused = document.activeElement;
  parent.replaceChildren(...wanted);
  if (parent.contains(focused)) focused.focus();
}

// Calls `draw` at most once a frame.
export function eachFrame(draw) {
  let waiting = 0;
  return () => {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      draw();
    });
  };
}

export function note(text) { at("note").textContent = text; }
