// Elements and their texts. What comes from events, channels and errors becomes text here, and never markup.

const SVG = "http://www.w3.org/2000/svg";

// Characters that are not seen: by marks of direction and the like a name could look like another one.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu;

/** The text with what is not seen written out. */
export function plain(text) {
  return text.replace(UNSEEN, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  const wanted = children.flat().filter((child) => child !== null && child !== undefined);
  node.append(...wanted.map((child) => (typeof child === "string" ? plain(child) : child)));
  return node;
}

/** An HTML element; children are nodes or texts. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Write a text where it has changed: screen readers and selections are left alone otherwise. */
export function write(node, text) {
  const seen = plain(text);
  if (node.textContent !== seen) node.textContent = seen;
}

/** The attribute, where it has changed. */
export function mark(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Where a channel's page is. */
export function addressOf(channel) {
  return `#/channel/${encodeURIComponent(channel)}`;
}
