// JSON text over several lines.  It is laid out, not read: a long number keeps all its digits.

const PARTS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g;

// Text that is no JSON, as that of a call that is still written, stays as it is.
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const parts = text.match(PARTS), isOpen = (part) => part === "{" || part === "[";
  let depth = 0, made = "";
  parts.forEach((part, i) => {
    const before = parts[i - 1], isClose = part === "}" || part === "]";
    if (isClose) depth -= 1;
    if (isClose ? !isOpen(before) : isOpen(before) || before === ",") made += `\n${"  ".repeat(depth)}`;
    made += part === ":" ? ": " : part;
    if (isOpen(part)) depth += 1;
  });
  return made;
}
