// The settings of requests.  They survive a reload; the API key only in its tab.

import { at } from "./dom.js";

const NAME = "mlxfill.settings", KEY = "mlxfill.key";
const FIELDS = ["temperature", "seed", "most", "tools", "draft"];
const SAMPLE_TOOLS = [
  { type: "function", function: { name: "get_weather", description: "Weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } },
];

export const apiKey = () => at("key").value;
export const showsTokens = () => at("view-tokens").checked;

export function viewTokens(wanted) {
  at(wanted ? "view-tokens" : "view-rendered").checked = true;
  saveSettings();
}

// The fields of a request that the settings decide.
// Throws SyntaxError where the tools are no JSON.
export function requestSettings() {
  const number = (id) => (at(id).value === "" ? undefined : Number(at(id).value));
  const tools = at("tools").value.trim();
  return {
    model: at("model").value || undefined, temperature: number("temperature"), seed: number("seed"),
    max_tokens: number("most"), tools: tools ? JSON.parse(tools) : undefined,
  };
}

export const drafts = () => (at("draft").checked ? undefined : false);

export function useSampleTools() {
  at("tools").value = JSON.stringify(SAMPLE_TOOLS, null, 1);
  saveSettings();
}

export function saveSettings() {
  const values = Object.fromEntries(FIELDS.map((id) => [id, property(id)]));
  try {
    localStorage.setItem(NAME, JSON.stringify({ ...values, tokens: showsTokens() }));
    sessionStorage.setItem(KEY, apiKey());
  } catch { /* nothing may be stored: they last as long as the page */ }
}

export function loadSettings() {
  try {
    const saved = JSON.parse(localStorage.getItem(NAME)) ?? {};
    for (const id of FIELDS) {
      if (typeof saved[id] === "boolean") at(id).checked = saved[id];
      else if (typeof saved[id] === "string") at(id).value = saved[id];
    }
    at("key").value = sessionStorage.getItem(KEY) ?? "";
    at(saved.tokens === true ? "view-tokens" : "view-rendered").checked = true;
  } catch { /* nothing usable is stored: the page's own values stay */ }
}

const property = (id) => (at(id).type === "checkbox" ? at(id).checked : at(id).value);
