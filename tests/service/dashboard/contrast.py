"""Contrast of text and ground, as WCAG 2 computes it, of everything that a page shows."""

from __future__ import annotations

FAINT_TEXT = """
const channel = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = text => {
  const parts = text.match(/[\\d.]+/g).map(Number);
  return parts.length < 4 ? [...parts, 1] : parts;
};
const groundOf = element => {
  for (let at = element; at; at = at.parentElement) {
    const [r, g, b, alpha] = parse(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return [r, g, b];
    if (alpha !== 0) throw new Error("a ground that is half transparent");
  }
  throw new Error("no ground");
};
const faint = [];
let seen = 0;
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  const style = getComputedStyle(element);
  if (!own || !element.checkVisibility() || element.closest(".unseen, title, desc, noscript, option")) continue;
  const text = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
  const [light, dark] = [luminance(text), luminance(groundOf(element))].sort((a, b) => b - a);
  const ratio = (light + 0.05) / (dark + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  seen += 1;
  const said = element.textContent.trim().slice(0, 40);
  if (ratio < (large ? 3 : 4.5)) faint.push(`${element.tagName} ${ratio.toFixed(2)} ${said}`);
}
if (seen < 5) faint.push(`only ${seen} texts were looked at`);
return faint;
"""
"""A script that returns texts whose contrast is below AA: 4.5, or 3 for large ones."""
