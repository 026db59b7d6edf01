// Pages work without this file. It shows where a slider stands while it is moved.
document.addEventListener("input", (event) => {
  const shown = event.target.matches("input[type=range]") && event.target.parentElement.querySelector("output");
  if (shown) shown.value = Number(event.target.value).toFixed(3);
});
