// Pages work without this file. It shows where a slider stands while it is moved.
document.addEventListener("input", (event) => {
  const shown = event.target.matches("input[type=range]") && event.target.parentElement.querySelector("output");
  if (shown) shown.value = Number(event.target.value).toFixed(3);
});

// A key presses the button, or enters the field, that names it; not while someone types, and once for each page.
let sent = false;
document.addEventListener("submit", () => { sent = true; });
window.addEventListener("pageshow", () => { sent = false; });
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (typing && event.key === "Escape") event.target.blur();
  if (typing || sent || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const wanted = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!wanted) return;
  event.preventDefault();
  if (wanted.matches("input, textarea, select")) wanted.focus();
  else wanted.click();
});
