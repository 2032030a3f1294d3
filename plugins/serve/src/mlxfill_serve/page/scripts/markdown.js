// Markdown of a model as elements.  What a model writes is not trusted: its HTML stays text
// (markdown-it), what was made of the Markdown is sanitised (DOMPurify), nothing is loaded
// (images become links), and the page's Content-Security-Policy holds on its own.

import markdownIt from "../vendor/markdown-it.esm.min.mjs";
import highlighter from "../vendor/highlight.min.js";
import "../vendor/purify.min.js";   // sets the global DOMPurify

import { element } from "./dom.js";

const LONGEST = 20_000;   // characters of code that are coloured
const ALLOWED = {
  ALLOWED_TAGS: [
    "p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "s", "a", "ul", "ol", "li", "blockquote",
    "pre", "code", "span", "table", "thead", "tbody", "tr", "th", "td",
  ],
  ALLOWED_ATTR: ["class", "href", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const markdown = markdownIt({ html: false, linkify: true, breaks: true, highlight: coloured });
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false });   // main.py is no address
markdown.core.ruler.push("levels", ({ tokens }) => {
  for (const token of tokens) {
    if (token.type.startsWith("heading_")) token.tag = `h${Math.min(6, Number(token.tag[1]) + 2)}`;
    const align = token.attrGet("style")?.match(/^text-align:(\w+)$/);   // the policy forbids styles
    if (align) token.attrs = [["class", `align-${align[1]}`]];
  }
});
markdown.renderer.rules.image = (tokens, i) => {
  const { escapeHtml } = markdown.utils, source = tokens[i].attrGet("src");
  return `<a href="${escapeHtml(source)}">${escapeHtml(`Image: ${tokens[i].content || source}`)}</a>`;
};

const memory = new Map();   // coloured code: a stream renders the same blocks again and again

function coloured(code, language) {
  if (!highlighter.getLanguage(language) || code.length > LONGEST) return "";
  const key = `${language}\n${code}`;
  if (memory.size > 200) memory.clear();
  if (!memory.has(key)) memory.set(key, highlighter.highlight(code, { language }).value);
  return memory.get(key);
}

const shown = new WeakMap();   // HTML of the blocks in a container

// Shows the text in `container`, a child for each block.  Blocks that did not change stay as they are.
export function showMarkdown(container, text) {
  const before = shown.get(container) ?? [], now = blocks(text);
  now.forEach((html, i) => {
    if (html === before[i]) return;
    const block = element("div", { class: "block" }, sanitised(html));
    if (container.children[i]) container.children[i].replaceWith(block);
    else container.append(block);
  });
  while (container.children.length > now.length) container.lastChild.remove();
  shown.set(container, now);
}

function blocks(text) {
  const env = {}, tokens = markdown.parse(text, env), found = [];
  let from = 0, depth = 0;
  tokens.forEach((token, i) => {
    depth += token.nesting;
    if (depth > 0) return;
    found.push(markdown.renderer.render(tokens.slice(from, i + 1), markdown.options, env));
    from = i + 1;
  });
  return found;
}

function sanitised(html) {
  const fragment = DOMPurify.sanitize(html, ALLOWED);
  for (const link of fragment.querySelectorAll("a[href]")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const pre of fragment.querySelectorAll("pre")) frameCode(pre);
  return fragment;
}

// Code gets a bar with its language and a button that copies it.
function frameCode(pre) {
  const language = pre.firstElementChild?.className.match(/^language-(\S+)/)?.[1] ?? "";
  const frame = element("div", { class: "code" });
  pre.replaceWith(frame);
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", `Code ${language}`.trim());
  const copy = element("button", { type: "button", "data-do": "copy-code" }, "Copy code");
  frame.append(element("div", { class: "code-bar" }, element("span", {}, language || "code"), copy), pre);
}
