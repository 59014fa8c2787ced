"use strict";
// Sorts a table by the column whose button is pressed; once more turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const status = document.getElementById("sort-status");
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      const value = (row) => Number(row.cells[column].dataset.value);
      const rows = [...body.rows].sort((a, b) => (descending ? value(b) - value(a) : value(a) - value(b)));
      body.append(...rows);
      for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      if (status) status.textContent = `Sorted by ${button.textContent}, ${descending ? "largest" : "smallest"} first`;
    });
  });
}
